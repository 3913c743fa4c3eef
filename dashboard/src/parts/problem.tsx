// What went wrong, in the server's words, where it went wrong, and a way to try again.

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
  // a command stays as it is typed
  if (text.startsWith('waybill ')) return text;
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
