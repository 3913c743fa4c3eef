// Settings of a destination: who defines it, its routes, tries and limits.

import { Fragment } from 'preact';
import type { ComponentChildren } from 'preact';

import type { DestinationDetail } from '../answers.js';
import { Time } from '../parts/time.js';
import { linkTo } from '../route.js';
import { count, milliseconds, plural, share } from '../shown.js';
import { shownLimit, shownOwner } from './destination-state.js';

export function DestinationSettings({ destination }: { destination: DestinationDetail }) {
  const { kind, owners, maxAttempts, whenDead, settings, routes } = destination;
  const { relay, fairness } = settings;
  return (
    <>
      <section class="panel">
        <h2>Settings</h2>
        <Facts
          of={[
            ['Kind', kind],
            ['Defined by', owners.map(shownOwner).join(', ') || 'no configuration'],
            ['Tries', plural(maxAttempts, 'try', 'tries')],
            ['Backoff', backoffOf(settings)],
            ['When dead', whenDead],
            ['Fairness', fairness],
            ['Rate limit', limitOf(destination)],
            ['Breaker', breakerOf(destination)],
            ['Concurrency', relay && `${count(relay.concurrency)} for each relay`],
            ['Timeout', relay && milliseconds(relay.timeoutMs)],
            ['Mode', relay?.mode],
            ['Partitions', relay?.mode === 'stream' ? count(relay.partitions) : null],
            ['Changed', <Time at={settings.changedAt} />],
          ]}
        />
      </section>
      <section class="panel">
        <h2>Routes</h2>
        {routes.length === 0 ? (
          <p class="muted">none</p>
        ) : (
          <ul class="topics">
            {routes.map(({ topic, namespace, tenantId, owner }) => (
              <li key={`${topic} ${namespace ?? ''} ${tenantId ?? ''} ${owner}`}>
                <code>{topic}</code>{' '}
                <span class="muted">
                  {[namespace, tenantId].filter((part) => part !== null).join(', ')}
                </span>
              </li>
            ))}
          </ul>
        )}
      </section>
      <p>
        <a href={linkTo('messages', { destination: destination.name })}>All its messages</a>
      </p>
    </>
  );
}

function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="endpoint-facts destination-facts">
      {of.map(
        ([name, value]) =>
          value !== null &&
          value !== undefined && (
            <Fragment key={name}>
              <dt>{name}</dt>
              <dd {...(typeof value === 'string' && { title: value })}>{value}</dd>
            </Fragment>
          ),
      )}
    </dl>
  );
}

function backoffOf({ retryDelaysMs, retryBaseMs, retryMaxMs }: DestinationDetail['settings']) {
  return retryDelaysMs === null
    ? `${milliseconds(retryBaseMs)}, doubled up to ${milliseconds(retryMaxMs)}`
    : retryDelaysMs.map((delay) => milliseconds(delay)).join(', ');
}

function limitOf({ ratePerSecond, settings }: DestinationDetail): string {
  if (ratePerSecond === null) return 'none';
  const burst = settings.relay?.burst;
  const atOnce = burst === null || burst === undefined ? '' : `, ${count(burst)} at once`;
  return `${shownLimit(ratePerSecond)}/s${atOnce}`;
}

function breakerOf({ hasBreaker, settings }: DestinationDetail): string {
  if (!hasBreaker) return 'none';
  const { failures, failureRate } = settings.relay?.breaker ?? {};
  if (failures === undefined || failureRate === undefined) return 'yes';
  return `after ${count(failures)} failures in a row, or ${share(failureRate)}`;
}
