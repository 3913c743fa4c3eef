// Where a delivery is, as a word with a colour.

export function statusOf({ status, retrying }: { status: string; retrying?: boolean }): string {
  if (status === 'pending') return retrying ? 'retrying' : 'waiting';
  return status;
}

export function Status({ status, retrying = false }: { status: string; retrying?: boolean }) {
  const word = statusOf({ status, retrying });
  return <span class={`status ${word}`}>{word}</span>;
}

export function Dot({ kind }: { kind: 'good' | 'warn' | 'bad' | 'off' }) {
  return <span class={`dot ${kind}`} aria-hidden="true" />;
}
