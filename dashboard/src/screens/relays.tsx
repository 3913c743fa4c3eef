// Screen of relays: which are running, their version and configuration, and the deliveries that they hold.

import type { Relay } from '../answers.js';
import { useLive } from '../live.js';
import { Problem } from '../parts/problem.js';
import { Dot } from '../parts/status.js';
import { Table } from '../parts/table.js';
import { Ago } from '../parts/time.js';
import { count, seconds } from '../shown.js';

const heartbeatWithinSeconds = 30;

export function isLiving(relay: Relay): boolean {
  return relay.heartbeatSecondsAgo < heartbeatWithinSeconds;
}

export function RelaysScreen() {
  const { data, error, loading, refresh } = useLive<{ relays: Relay[] }>('relays');
  const relays = data?.relays ?? [];
  const living = relays.filter(isLiving);
  const mixed = [...new Set(living.map(({ application }) => application))].filter((name) => {
    const its = living.filter(({ application }) => application === name);
    return new Set(its.map(({ configuration }) => configuration)).size > 1;
  });
  const different = (pick: (relay: Relay) => string): boolean => new Set(living.map(pick)).size > 1;
  return (
    <>
      <header class="screen-head">
        <h1>Relays</h1>
        <span class="muted">{data !== undefined && `${living.length} living`}</span>
      </header>
      <Problem error={error} again={refresh} />
      {different((relay) => relay.version) && (
        <p class="notice">Living relays run different versions.</p>
      )}
      {mixed.map((application) => (
        <p key={application} class="notice">
          Living relays of {application} run with different configurations.
        </p>
      ))}
      <Table
        label="Relays"
        rows={data?.relays}
        loading={loading}
        rowKey={(relay) => `${relay.name} ${relay.startedAt}`}
        empty="No relay runs. Start one: waybill start."
        columns={[
          {
            head: 'Relay',
            width: 'name',
            inCard: 'title',
            cell: (relay) => (
              <>
                <Dot kind={isLiving(relay) ? 'good' : 'bad'} /> <b>{relay.name}</b>
                <small class="why muted" title="application and its version">
                  {relay.application} {relay.applicationVersion}
                </small>
              </>
            ),
          },
          { head: 'Version', width: 'count', cell: (relay) => relay.version },
          {
            head: 'Heartbeat',
            width: 'number',
            cell: (relay) => (
              <span class={isLiving(relay) ? '' : 'bad-text'}>
                {seconds(relay.heartbeatSecondsAgo)} ago
              </span>
            ),
          },
          { head: 'Started', width: 'time', cell: (relay) => <Ago at={relay.startedAt} /> },
          {
            head: 'Processing',
            numeric: true,
            width: 'number',
            cell: (relay) => count(relay.processing),
          },
          {
            head: 'Leases',
            width: 'name',
            cell: ({ leases, expiredLeases, oldestLeaseAt }) =>
              leases === 0 ? (
                <span class="muted">none</span>
              ) : (
                <span class="wrapped">
                  {count(leases)}, oldest <Ago at={oldestLeaseAt} />
                  {expiredLeases > 0 && (
                    <span class="bad-text"> {count(expiredLeases)} expired</span>
                  )}
                </span>
              ),
          },
          {
            head: 'Configuration',
            width: 'small',
            cell: (relay) => (
              <code title={relay.configuration}>{relay.configuration.slice(0, 8)}</code>
            ),
          },
          {
            head: 'Destinations',
            cell: (relay) => (
              <>
                <span class="wrapped">{relay.destinations.join(', ')}</span>
                {relay.problems.map((problem) => (
                  <small key={problem} class="why bad-text">
                    {problem}
                  </small>
                ))}
              </>
            ),
          },
        ]}
      />
    </>
  );
}
