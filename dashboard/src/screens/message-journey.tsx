// Journey of a message: its transaction, every claim with its end, what operators did after it, and what comes next.

import { Fragment } from 'preact';
import type { ComponentChildren } from 'preact';
import { useContext, useState } from 'preact/hooks';

import type { Attempt, Message } from '../answers.js';
import { useLive } from '../live.js';
import { Ago, Time } from '../parts/time.js';
import { linkTo } from '../route.js';
import { SessionContext } from '../session.js';
import { milliseconds } from '../shown.js';
import { DestinationName } from './destination-state.js';
import { RequestDialog } from './message-request.js';

/** Words and colours for the states of an attempt. */
const attemptWords: Record<string, { text: string; kind: string }> = {
  dispatching: { text: 'processing', kind: 'processing' },
  dispatched: { text: 'delivered', kind: 'delivered' },
  retryable: { text: 'failed, to be tried again', kind: 'retrying' },
  failed: { text: 'failed, became a dead letter', kind: 'dead' },
  zombie_requeue: { text: 'requeued: its lease expired', kind: 'retrying' },
  released: { text: 'released without a try', kind: 'pending' },
  discarded: { text: 'discarded', kind: 'discarded' },
};

/** What an operator did with the message after a claim; a discard is recorded by a claim of its own. */
type OperatorAction = {
  destination: string;
  claimNo: number;
  at: string;
  actor: string;
  action: string;
};

/** Words for actions that are steps of their own. */
const actionWords: Record<string, string> = {
  retry_dead_letters: 'retried',
  retry_now: 'retried now',
  start_replay: 'replayed',
  restore_dead_letters: 'discard undone',
};

type JourneyProps = {
  message: Message;
  /** Asks whether the message shall be sent to the destination again. */
  resend: (destination: string) => void;
};

export function Journey({ message, resend }: JourneyProps) {
  const { tenantId } = useContext(SessionContext);
  // the audit belongs to no tenant
  const address = tenantId === null ? `messages/${encodeURIComponent(message.id)}/actions` : null;
  const { data: audit, error } = useLive<{ actions: OperatorAction[] }>(address, {
    everyMs: 15_000,
  });
  const isLoading = address !== null && audit === undefined && error === undefined;
  const actionsAfter = (attempt: Attempt): OperatorAction[] =>
    (audit?.actions ?? []).filter(
      ({ destination, claimNo }) =>
        destination === attempt.destination && claimNo === attempt.claimNo,
    );
  const [shown, setShown] = useState<Attempt>();
  const trace = message.headers?.['traceparent'];
  const coming = message.deliveries.filter(({ nextTryAt }) => nextTryAt !== null);
  return (
    <>
      <ol class="journey" aria-busy={isLoading}>
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
          <Fragment key={`${attempt.destination} ${attempt.claimNo} ${attempt.state}`}>
            <AttemptStep
              attempt={attempt}
              discardedBy={
                actionsAfter(attempt).find(({ action }) => actionWords[action] === undefined)?.actor
              }
              show={setShown}
            />
            {actionsAfter(attempt)
              .filter(({ action }) => actionWords[action] !== undefined)
              .map((each) => (
                <Step
                  key={each.at}
                  kind="operator"
                  title={
                    <>
                      <DestinationName name={each.destination} />: {actionWords[each.action]} by{' '}
                      <a href={linkTo('audit', { actor: each.actor })}>{each.actor}</a>
                    </>
                  }
                  at={each.at}
                />
              ))}
          </Fragment>
        ))}
        {coming.map(({ destination, nextTryAt, tries }) => (
          <Step
            key={destination}
            kind="coming"
            title={
              <>
                <DestinationName name={destination ?? ''} />: try {tries + 1}
              </>
            }
            at={nextTryAt}
          >
            <p class="muted">
              due <Ago at={nextTryAt} />
            </p>
          </Step>
        ))}
      </ol>
      {shown && (
        <RequestDialog
          messageId={message.id}
          attempt={shown}
          resend={() => {
            setShown(undefined);
            resend(shown.destination);
          }}
          close={() => setShown(undefined)}
        />
      )}
    </>
  );
}

type AttemptProps = {
  attempt: Attempt;
  /** The operator. */
  discardedBy: string | undefined;
  /** Shows its request. */
  show: (attempt: Attempt) => void;
};

function AttemptStep({ attempt, discardedBy, show }: AttemptProps) {
  const { tenantId } = useContext(SessionContext);
  const { text, kind } = attemptWords[attempt.state] ?? { text: attempt.state, kind: 'pending' };
  const from = attempt.claimedAt;
  return (
    <Step
      kind={kind}
      title={
        <>
          <DestinationName name={attempt.destination} />: {text}
        </>
      }
      at={attempt.endedAt ?? attempt.claimedAt}
    >
      <Details
        of={[
          [
            'by',
            discardedBy && <a href={linkTo('audit', { actor: discardedBy })}>{discardedBy}</a>,
          ],
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
      {tenantId === null && !['released', 'discarded'].includes(attempt.state) && (
        <button type="button" class="small" onClick={() => show(attempt)}>
          Request
        </button>
      )}
    </Step>
  );
}

type StepProps = {
  kind: string;
  title: ComponentChildren;
  at: string | null;
  children?: ComponentChildren;
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
