// Shows an error with the server's text at the place where it occurred, and a button to try again.

import type { ComponentChildren } from 'preact';

export function Problem({ error, again }: { error: Error | undefined; again?: () => void }) {
  if (error === undefined) return null;
  return (
    <div class="problem" role="alert">
      <span>{sentence(error.message)}</span>
      {again && (
        <button type="button" class="small" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function sentence(text: string): string {
  // a command keeps its lower case
  if (text.startsWith('waybill ')) return text;
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
