// Screen of one destination: where it sends, its state and last error, activity, errors by code, times and settings.

import type { DestinationDetail } from '../answers.js';
import { useLive } from '../live.js';
import { Action } from '../parts/action.js';
import { useQuestion } from '../parts/dialog.js';
import { Histogram } from '../parts/histogram.js';
import { Outcomes } from '../parts/outcomes.js';
import { Problem } from '../parts/problem.js';
import { Dot } from '../parts/status.js';
import { Ago } from '../parts/time.js';
import { linkTo } from '../route.js';
import { about, count } from '../shown.js';
import { useTitle } from '../title.js';
import { DestinationErrors } from './destination-errors.js';
import { DestinationSettings } from './destination-settings.js';
import {
  State,
  destinationPath,
  destinationState,
  linkToDestination,
  pauseOrResume,
  sendTest,
} from './destination-state.js';
import { DestinationStatistics } from './destination-statistics.js';
import { retryQuestion } from './messages.js';
import { useRetryFailed } from './retry-failed.js';

export function DestinationScreen({ name }: { name: string }) {
  useTitle(name);
  const { data, error, refresh } = useLive<DestinationDetail>(destinationPath(name));
  const { ask, dialog } = useQuestion((done) => done && refresh());
  const { retryFailed, madeDue } = useRetryFailed();
  const change = async (): Promise<void> => {
    if (data) await pauseOrResume(data);
    refresh();
  };
  return (
    <>
      <nav class="back" aria-label="Back">
        <a href={linkTo('destinations')}>← Destinations</a>
      </nav>
      {data === undefined && <h1>{name}</h1>}
      <Problem error={error} again={refresh} />
      {data && (
        <>
          <header class="screen-head">
            <div class="endpoint-title">
              <h1>
                <Dot kind={destinationState(data).kind} /> {data.name}
              </h1>
              <Address destination={data} />
            </div>
            <div class="head-actions">
              <Action
                label={data.paused ? 'Resume' : 'Pause'}
                icon={data.paused ? 'play' : 'pause'}
                act={change}
              />
              <Action
                label="Send a test"
                icon="send"
                unavailable={data.configured ? undefined : 'It is in no configuration'}
                act={() => sendTest(data)}
              />
              <Action
                label="Retry failed"
                icon="retry"
                unavailable={data.retrying > 0 ? undefined : 'No delivery waits for a retry'}
                act={() =>
                  ask(retryQuestion(new URLSearchParams({ destination: name }), retryFailed))
                }
              />
            </div>
          </header>
          <Situation destination={data} />
          <div class="endpoint-parts">
            <div>
              <Amounts destination={data} />
              <DestinationStatistics destination={data} />
              <DestinationErrors destination={data} />
              <div class="histograms">
                <Histogram title="Time to delivery" of={data.deliveryTimes} />
                <Histogram title="Duration of tries" of={data.durations} />
              </div>
            </div>
            <aside aria-label="Settings">
              <DestinationSettings destination={data} />
            </aside>
          </div>
        </>
      )}
      <Outcomes>{madeDue}</Outcomes>
      {dialog}
    </>
  );
}

/** Where it sends. The server gets the address from the relays that declare it. */
function Address({ destination }: { destination: DestinationDetail }) {
  const { kind, settings } = destination;
  if (kind === 'endpoint')
    return (
      <p>
        <a href={linkToDestination(destination)}>An endpoint: its address and deliveries</a>
      </p>
    );
  const address = settings.relay?.address;
  if (address === undefined)
    return <p class="muted">The address is not known: no relay has declared it lately.</p>;
  if (address === null) return <p class="muted">{kind}: it has no address</p>;
  return (
    <dl class="address">
      {address.map(({ name, value }) => (
        <div key={name}>
          <dt class={address.length === 1 ? 'unseen' : 'muted'}>{name}</dt>
          <dd>
            <code>{value}</code>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** The state, since when it has failed, and the last error. */
function Situation({ destination }: { destination: DestinationDetail }) {
  const { failingSince, lastError, breakers } = destination;
  return (
    <section class="panel situation" aria-label="State">
      <p>
        <State destination={destination} />
        {breakers.map(({ relay, state, since }) => (
          <span key={relay} class="bad-text">
            {' '}
            · breaker {state} at {relay} <Ago at={since} />
          </span>
        ))}
        {failingSince !== null && (
          <span class="warn-text">
            {' '}
            · no success since <Ago at={failingSince} />
          </span>
        )}
      </p>
      {lastError !== null && (
        <p>
          <span class="muted">
            Last error <Ago at={lastError.lastAt} />:
          </span>{' '}
          <code>{lastError.errorCode}</code>{' '}
          {lastError.remoteCode !== null && <code>{lastError.remoteCode}</code>}{' '}
          {lastError.lastError}{' '}
          <a href={linkTo(`messages/${lastError.lastMessageId}`)}>its message</a>
        </p>
      )}
    </section>
  );
}

/** Deliveries by status, with links to them. */
function Amounts({ destination }: { destination: DestinationDetail }) {
  const { name, waiting, retrying, processing, dead } = destination;
  const messages = (status: string) => linkTo('messages', { status, destination: name });
  const tiles: [string, string, string, string][] = [
    ['Waiting', about(waiting), messages('pending'), ''],
    ['Retrying', about(retrying), messages('retrying'), retrying > 0 ? 'warn-text' : ''],
    ['Processing', count(processing), messages('processing'), ''],
    [
      'Dead letters',
      about(dead),
      linkTo('dead-letters', { destination: name }),
      dead > 0 ? 'bad-text' : '',
    ],
  ];
  return (
    <dl class="totals">
      {tiles.map(([label, value, link, kind]) => (
        <div key={label} class="panel">
          <dt>{label}</dt>
          <dd>
            <a class={kind} href={link}>
              {value}
            </a>
          </dd>
        </div>
      ))}
    </dl>
  );
}
