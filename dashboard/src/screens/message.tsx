// Screen of one message: its fields, its state at each destination with the reason, its journey and its payload.

import { useState } from 'preact/hooks';

import { isUuid } from '../../../src/core/uuid.js';
import type { Message } from '../answers.js';
import { ApiError, post } from '../api.js';
import { useLive } from '../live.js';
import { Copy } from '../parts/copy.js';
import { useQuestion } from '../parts/dialog.js';
import { Outcome, Outcomes } from '../parts/outcomes.js';
import { Payload } from '../parts/payload.js';
import { Problem } from '../parts/problem.js';
import { resendQuestion } from '../parts/resend.js';
import { Time } from '../parts/time.js';
import { linkTo } from '../route.js';
import { useTitle } from '../title.js';
import { Explanations } from './message-explanations.js';
import { Journey } from './message-journey.js';
import { ReplayDialog } from './replays/replay-dialog.js';

export function MessageScreen({ id }: { id: string }) {
  const { ask, dialog } = useQuestion((done) => done && refresh());
  /** The destination that it was just sent to again. */
  const [resentTo, setResentTo] = useState<string>();
  const [replayTo, setReplayTo] = useState<string>();
  const { data, error, refresh } = useLive<Message>(isUuid(id) ? `messages/${id}` : null, {
    everyMs: 3000,
  });
  const noId = isUuid(id)
    ? undefined
    : new ApiError(400, `the message id is ${JSON.stringify(id)}: give a UUID`);
  useTitle(data?.topic ?? 'Message');
  const resend = (message: Message, destination: string): void => {
    const { topic } = message;
    const act = async (): Promise<void> => {
      await post(`messages/${id}/resend`, { destination });
      setResentTo(destination);
    };
    ask(resendQuestion({ id, topic, to: destination }, act));
  };
  return (
    <>
      <header class="screen-head">
        <h1>
          <a href={linkTo('messages')} class="crumb">
            Messages
          </a>{' '}
          <span class="muted">/</span> {data?.topic ?? 'message'}
        </h1>
        <span class="id">
          <code>{id}</code> <Copy label="Copy the id" text={id} bare />
        </span>
      </header>
      <Problem error={noId ?? error} again={refresh} />
      {data && (
        <div class="message">
          <div class="message-main">
            <Explanations message={data} refresh={refresh} ask={ask} replay={setReplayTo} />
            <section class="panel">
              <header>
                <h2>Journey</h2>
              </header>
              <Journey message={data} resend={(destination) => resend(data, destination)} />
            </section>
          </div>
          <div class="message-side">
            <section class="panel">
              <header>
                <h2>Message</h2>
              </header>
              <Facts message={data} />
            </section>
            <section class="panel">
              <header>
                <h2>Payload</h2>
              </header>
              <Payload message={data} />
            </section>
          </div>
        </div>
      )}
      <Outcomes>
        {resentTo !== undefined && (
          <Outcome label="Sent again" dismiss={() => setResentTo(undefined)}>
            <span role="status">Sent again to {resentTo}; the result appears in the journey.</span>
          </Outcome>
        )}
      </Outcomes>
      {dialog}
      {replayTo !== undefined && (
        <ReplayDialog
          asked={{ ids: [id], destination: replayTo }}
          close={() => {
            setReplayTo(undefined);
            refresh();
          }}
        />
      )}
    </>
  );
}

function Facts({ message }: { message: Message }) {
  const facts: [string, string | null, string?][] = [
    ['Topic', message.topic, linkTo('messages', { topic: message.topic })],
    ['Namespace', message.namespace],
    ['Tenant', message.tenantId, linkTo('messages', { tenantId: message.tenantId })],
    ['Key', message.key, linkTo('messages', { key: message.key })],
    ['Sequence', message.sequence],
    ['Dedupe key', message.dedupeKey],
    [
      'Aggregate',
      message.aggregateType === null
        ? null
        : `${message.aggregateType} ${message.aggregateId ?? ''}`,
      linkTo('messages', {
        aggregateType: message.aggregateType,
        aggregateId: message.aggregateId,
      }),
    ],
  ];
  return (
    <dl class="facts">
      <dt>Created</dt>
      <dd>
        <Time at={message.createdAt} />
      </dd>
      {facts.map(
        ([name, value, link]) =>
          value !== null && (
            <div key={name} class="fact">
              <dt>{name}</dt>
              <dd>{link === undefined ? value : <a href={link}>{value}</a>}</dd>
            </div>
          ),
      )}
      {Object.entries(message.headers ?? {}).map(([name, value]) => (
        <div key={`header ${name}`} class="fact">
          <dt title="header">{name}</dt>
          <dd>
            <code>{value}</code>
          </dd>
        </div>
      ))}
    </dl>
  );
}
