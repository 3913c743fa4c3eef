// Journey of a message: its transaction, every claim with its end, and what comes next.

import type { ComponentChildren } from 'preact';

import type { Attempt, Message } from '../answers.js';
import { Ago, Time } from '../parts/time.js';
import { milliseconds } from '../shown.js';

const words: Record<string, { text: string; kind: string }> = {
  dispatching: { text: 'in flight', kind: 'processing' },
  dispatched: { text: 'delivered', kind: 'delivered' },
  retryable: { text: 'failed, to be tried again', kind: 'retrying' },
  failed: { text: 'failed for good', kind: 'dead' },
  zombie_requeue: { text: 'requeued: its lease expired', kind: 'retrying' },
  released: { text: 'released without a try', kind: 'pending' },
  discarded: { text: 'discarded', kind: 'discarded' },
};

export function Journey({ message }: { message: Message }) {
  const trace = message.headers?.['traceparent'];
  const coming = message.deliveries.filter(({ nextTryAt }) => nextTryAt !== null);
  return (
    <ol class="journey">
      <Step kind="enqueued" title="Enqueued" at={message.createdAt}>
        {message.transactionId === null ? (
          <p class="muted">
            Retention has removed the message itself: this is the dead letter's copy.
          </p>
        ) : (
          <Details
            of={[
              ['transaction', message.transactionId],
              ['trace', trace],
              ['actor', message.headers?.['actor']],
            ]}
          />
        )}
      </Step>
      {message.attempts.map((attempt) => (
        <AttemptStep
          key={`${attempt.destination} ${attempt.claimNo} ${attempt.state}`}
          attempt={attempt}
        />
      ))}
      {coming.map(({ destination, nextTryAt, tries }) => (
        <Step
          key={destination}
          kind="coming"
          title={`${destination ?? ''}: try ${tries + 1}`}
          at={nextTryAt}
        >
          <p class="muted">
            due <Ago at={nextTryAt} />
          </p>
        </Step>
      ))}
    </ol>
  );
}

function AttemptStep({ attempt }: { attempt: Attempt }) {
  const { text, kind } = words[attempt.state] ?? { text: attempt.state, kind: 'pending' };
  const from = attempt.claimedAt;
  return (
    <Step
      kind={kind}
      title={`${attempt.destination}: ${text}`}
      at={attempt.endedAt ?? attempt.claimedAt}
    >
      <Details
        of={[
          ['claim', `${attempt.claimNo}, try ${attempt.tries}`],
          ['relay', attempt.relay],
          ['claimed', from === null ? null : <Time at={from} />],
          ['took', attempt.latencyMs === null ? null : milliseconds(attempt.latencyMs)],
          ['code', attempt.errorCode && <code>{attempt.errorCode}</code>],
          ['answer', attempt.remoteCode && <code>{attempt.remoteCode}</code>],
          ['error', attempt.errorMessage],
          ['receipt', attempt.reference && <code>{attempt.reference}</code>],
        ]}
      />
      {attempt.response !== null && (
        <details class="response">
          <summary>Response body</summary>
          <pre tabIndex={0}>{attempt.response}</pre>
        </details>
      )}
    </Step>
  );
}

type StepProps = {
  kind: string;
  title: string;
  at: string | null;
  children: ComponentChildren;
};

function Step({ kind, title, at, children }: StepProps) {
  return (
    <li class={kind}>
      <div class="step-head">
        <b>{title}</b>
        <Time at={at} />
      </div>
      {children}
    </li>
  );
}

function Details({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="details">
      {of.map(
        ([name, value]) =>
          value !== null &&
          value !== undefined &&
          value !== '' && (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ),
      )}
    </dl>
  );
}
