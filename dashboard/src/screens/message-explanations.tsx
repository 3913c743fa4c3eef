// Explains for each destination why a message is not delivered yet, in the database's words, with a button for the
// remedy.

import type { ComponentChildren } from 'preact';

import type { Message } from '../answers.js';
import { post } from '../api.js';
import { Action, useMayOperateAll } from '../parts/action.js';
import type { Question } from '../parts/dialog.js';
import { Status } from '../parts/status.js';
import { WithTimes } from '../parts/time.js';
import { linkTo } from '../route.js';
import { DestinationName } from './destination-state.js';
import { deleteQuestion, isOpen, retryNow } from './message-rows.js';

type Explanation = Message['explanations'][number];
type Props = {
  message: Message;
  refresh: () => void;
  ask: (question: Question) => void;
  /** Replays the message to this destination. */
  replay: (destination: string) => void;
};

const uuid = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/;

export function Explanations({ message, refresh, ask, replay }: Props) {
  const done = message.explanations.every(({ status }) => status === 'delivered');
  return (
    <section class="panel" aria-label="Why">
      <header>
        <h2>{done ? 'Where it is' : 'Why it is not delivered yet'}</h2>
      </header>
      <ul class="explanations">
        {message.explanations.map((explanation) => (
          <li key={explanation.destination ?? ''}>
            <div class="explanation-head">
              <Status
                status={explanation.status}
                retrying={
                  message.deliveries.find(
                    ({ destination }) => destination === explanation.destination,
                  )?.retrying ?? false
                }
              />
              <b>
                {explanation.destination === null ? (
                  'no destination'
                ) : (
                  <DestinationName name={explanation.destination} />
                )}
              </b>
              {explanation.reason !== explanation.status && (
                <code class="muted">{explanation.reason}</code>
              )}
            </div>
            <p>
              <Linked text={explanation.sentence} />
            </p>
            {explanation.remedy !== null && (
              <p class="muted remedy">
                <Linked text={explanation.remedy} />
              </p>
            )}
            <div class="buttons">
              <Remedies {...{ message, explanation, refresh, ask, replay }} />
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The remedy for the reason, and the actions that are possible for any open delivery. */
function Remedies(props: Props & { explanation: Explanation }) {
  const { message, explanation, refresh, ask, replay } = props;
  const mayOperateAll = useMayOperateAll();
  const { reason, destination, status, sentence } = explanation;
  const other = uuid.exec(sentence)?.[0];
  const send = async (path: string, body: object = {}): Promise<void> => {
    await post(path, body);
    refresh();
  };
  if (destination === null) return null;
  const place = message.deliveries.find((delivery) => delivery.destination === destination) ?? {
    tries: 0,
    nextTryAt: null,
    canRestore: false,
  };
  return (
    <>
      {reason === 'paused' && mayOperateAll && (
        <Action
          label={`Resume ${destination}`}
          icon="play"
          kind="primary"
          act={() => send(`destinations/${encodeURIComponent(destination)}/resume`)}
        />
      )}
      {reason === 'blocked' && other !== undefined && mayOperateAll && (
        <>
          {(['retry', 'skip'] as const).map((action) => (
            <Action
              key={action}
              label={action === 'retry' ? 'Retry the dead letter' : 'Skip the dead letter'}
              icon={action}
              {...(action === 'retry' && { kind: 'primary' as const })}
              act={() => send(`keys/${other}/${action}`, { destination })}
            />
          ))}
        </>
      )}
      {(reason === 'blocked' || reason === 'behind') && other !== undefined && (
        <a class="button small" href={linkTo(`messages/${other}`)}>
          Go to the message it waits behind
        </a>
      )}
      {reason === 'no_relay' && (
        <a class="button small" href={linkTo('relays')}>
          See the relays
        </a>
      )}
      {place.canRestore && (
        <Action
          label="Undo discard"
          icon="replay"
          act={() => send(`messages/${message.id}/restore`, { destination })}
        />
      )}
      {['delivered', 'discarded'].includes(status) && mayOperateAll && (
        <Action label="Replay…" icon="replay" act={() => replay(destination)} />
      )}
      {isOpen({ status }) && (
        <>
          {['retrying', 'scheduled', 'dead', 'parked'].includes(reason) && (
            <Action
              label="Retry now"
              icon="retry"
              kind="primary"
              act={() =>
                retryNow({ ...place, messageId: message.id, destination, status }, ask, refresh)
              }
            />
          )}
          <Action
            label={status === 'dead' ? 'Discard' : 'Cancel delivery'}
            icon="delete"
            act={() => ask(deleteQuestion({ messageId: message.id, destination, status }))}
          />
        </>
      )}
    </>
  );
}

/** Turns the ids in a sentence into links to their messages, and shows its times in the zone of the page. */
function Linked({ text }: { text: string }) {
  const parts: ComponentChildren[] = [];
  let rest = text;
  for (let found = uuid.exec(rest); found !== null; found = uuid.exec(rest)) {
    parts.push(
      <WithTimes text={rest.slice(0, found.index)} />,
      <a href={linkTo(`messages/${found[0]}`)}>{found[0]}</a>,
    );
    rest = rest.slice(found.index + found[0].length);
  }
  return (
    <>
      {parts}
      <WithTimes text={rest} />
    </>
  );
}
