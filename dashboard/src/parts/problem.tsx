// Shows an error with the server's text at the place where it occurred, and a button to try again.

import type { ComponentChildren } from 'preact';

import { ApiError } from '../api.js';

export function Problem({ error, again }: { error: Error | undefined; again?: () => void }) {
  if (error === undefined) return null;
  // a request that was rejected is rejected again
  const rejected = error instanceof ApiError && error.status === 400;
  return (
    <div class="problem" role="alert">
      <span>{sentence(error.message)}</span>
      {again && !rejected && (
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
