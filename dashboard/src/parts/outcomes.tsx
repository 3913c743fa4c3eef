// Results of the user's last actions, in a bar at the bottom of the window: readable wherever the user has scrolled to,
// and nothing above it moves.

import type { ComponentChildren } from 'preact';

import type { ListedMessage } from '../answers.js';
import { linkTo } from '../route.js';

export function Outcomes({ children }: { children: ComponentChildren }) {
  return <div class="outcomes">{children}</div>;
}

type OutcomeProps = { label: string; dismiss: () => void; children: ComponentChildren };

/** One result. "Dismiss" is at its end. */
export function Outcome({ label, dismiss, children }: OutcomeProps) {
  return (
    <section class="panel outcome" aria-label={label}>
      {children}
      <button type="button" class="small dismiss" onClick={dismiss}>
        Dismiss
      </button>
    </section>
  );
}

export type Named = Pick<ListedMessage, 'messageId' | 'destination' | 'topic' | 'key'>;

/** A message as a result names it: topic, key or the end of its id, and destination. */
export function MessageName({ message }: { message: Named }) {
  const { messageId, destination, topic, key } = message;
  return (
    <>
      <a href={linkTo(`messages/${messageId}`)} title={messageId}>
        {topic ?? 'message'} {key ?? `…${messageId.slice(-8)}`}
      </a>
      {destination !== null && ` at ${destination}`}
    </>
  );
}
