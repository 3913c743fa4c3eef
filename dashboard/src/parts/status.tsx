// Shows the state of a delivery as a coloured word.

export function statusOf({ status, retrying }: { status: string; retrying?: boolean }): string {
  return status === 'pending' && retrying ? 'retrying' : status;
}

export function Status({ status, retrying = false }: { status: string; retrying?: boolean }) {
  const word = statusOf({ status, retrying });
  return <span class={`status ${word}`}>{word}</span>;
}

export function Dot({ kind }: { kind: 'good' | 'warn' | 'bad' | 'off' }) {
  return <span class={`dot ${kind}`} aria-hidden="true" />;
}
