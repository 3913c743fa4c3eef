// Screen of all endpoints for operators: those with problems first, found by name, address, tenant and state.

import { sendTest, setEnabled } from './actions.js';
import type { Endpoint, Endpoints } from './answers.js';
import { EndpointScreen } from './endpoint.js';
import { State, stateOf, stateWords } from './state.js';
import { withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { Filters } from '../../parts/filters.js';
import { Pager } from '../../parts/pager.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { linkTo, usePlace } from '../../route.js';
import { countUpTo } from '../../shown.js';

/** Where the API stops counting in a list. */
const countedAtMost = 1000;

const orders = [
  ['newest', 'newest first'],
  ['name', 'name'],
  ['waiting', 'most waiting'],
  ['dead', 'most dead'],
] as const;
const states = Object.entries(stateWords).map(([state, word]) => [state, word] as const);

export function EndpointsScreen() {
  const { path } = usePlace();
  return path[1] === undefined ? (
    <EndpointTable />
  ) : (
    <EndpointScreen key={path[1]} name={path[1]} />
  );
}

function EndpointTable() {
  const { query } = usePlace();
  const next = query.get('next');
  const { data, error, loading, refresh } = useLive<Endpoints>(
    withQuery('endpoints', {
      search: query.get('search'),
      tenantId: query.get('tenantId'),
      state: query.get('state'),
      order: query.get('order') ?? 'problems',
      limit: 50,
      next,
    }),
    { paused: next !== null },
  );
  const isFiltered = ['search', 'tenantId', 'state'].some((name) => query.has(name));
  const change = async (endpoint: Endpoint): Promise<void> => {
    await setEnabled(endpoint);
    refresh();
  };
  const amount = ({ name }: Endpoint, status: 'pending' | 'dead', value: number) => (
    <a
      class={value === 0 ? 'muted' : status === 'dead' ? 'bad-text' : ''}
      href={linkTo('messages', { status, destination: name })}
    >
      {countUpTo(value, countedAtMost)}
    </a>
  );
  return (
    <>
      <header class="screen-head">
        <h1>Endpoints</h1>
      </header>
      <Filters
        path="endpoints"
        filters={[
          { name: 'search', label: 'Beginning of name, address or tenant' },
          { name: 'tenantId', label: 'Tenant' },
          { name: 'state', label: 'State', choices: states },
          { name: 'order', label: 'Order', choices: orders, none: 'problems first' },
        ]}
      />
      <Problem error={error} again={refresh} />
      <Table
        label="Endpoints"
        rows={data?.endpoints}
        loading={loading}
        rowKey={({ name }) => name}
        empty={
          data?.next
            ? 'None of those that were searched match. Search on for more.'
            : isFiltered
              ? 'No endpoint matches.'
              : 'There are no endpoints yet. An endpoint is a webhook of a customer, stored in the database instead of the configuration.'
        }
        columns={[
          {
            head: 'Endpoint',
            inCard: 'title',
            cell: ({ name, url, description }) => (
              <>
                <a
                  href={linkTo(`endpoints/${encodeURIComponent(name)}`)}
                  title={description ?? url}
                >
                  {url}
                </a>
                <small class="why muted not-in-card">{name}</small>
              </>
            ),
          },
          {
            head: 'Tenant',
            width: 'medium',
            cell: ({ tenantId }) =>
              tenantId === null ? (
                <span class="muted">all</span>
              ) : (
                <a href={linkTo('endpoints', { tenantId })} title={tenantId}>
                  {tenantId}
                </a>
              ),
          },
          {
            head: 'State',
            width: 'large',
            cell: (endpoint) => (
              <>
                <State endpoint={endpoint} />
                {stateOf(endpoint) === 'disabled' && endpoint.disabledBecause !== null && (
                  <small class="why muted" title={endpoint.disabledBecause}>
                    {endpoint.disabledBecause}
                  </small>
                )}
              </>
            ),
          },
          {
            head: 'Waiting',
            width: 'count',
            numeric: true,
            cell: (endpoint) => amount(endpoint, 'pending', endpoint.waiting),
          },
          {
            head: 'Dead',
            width: 'count',
            numeric: true,
            cell: (endpoint) => amount(endpoint, 'dead', endpoint.dead),
          },
          {
            head: 'Changed',
            width: 'time',
            inCard: 'hidden',
            cell: ({ changedAt }) => <Time at={changedAt} />,
          },
          {
            head: 'Actions',
            width: 'actions-2',
            cell: (endpoint) => (
              <span class="row-actions">
                <Action
                  label={endpoint.enabled ? 'Disable' : 'Enable'}
                  icon={endpoint.enabled ? 'pause' : 'play'}
                  bare
                  act={() => change(endpoint)}
                />
                <Action label="Send a test" icon="send" bare act={() => sendTest(endpoint)} />
              </span>
            ),
          },
        ]}
      />
      <Pager
        next={data?.next ?? null}
        {...(data && data.endpoints.length < 50 && { nextLabel: 'Search on' })}
      />
      <p class="footnote">
        By default, failing ones come first, then disabled ones, then the others, each the newest
        first. Failing means that tries have failed since the last success. Counts stop at 1 000.
        Most waiting and most dead count the 20 000 oldest deliveries and the 20 000 newest dead
        letters of all destinations.
      </p>
    </>
  );
}
