// Calls of the bench of the page: each filter of the message list alone and in pairs, first and deep pages, the other
// screens, and some queries of the command line. The values go from common to rare, so that no two measurements are quite
// the same.

import type pg from 'pg';

import type { Database } from '../../src/database/connection.js';
import { listReplays, planReplay } from '../../src/features/replays/database.js';
import { listedStatuses } from '../../src/listing/statuses.js';
import { Tail } from '../../src/listing/tail.js';
import { common, keysOf } from './load.js';
import type { Size } from './load.js';

/** `turn` chooses the values. */
export type Call = {
  name: string;
  kind: 'alone' | 'pair' | 'deep' | 'screen' | 'command';
  method?: 'POST';
  path: (turn: number) => string;
  body?: (turn: number) => object;
  /** Begins what the call asks about, before its first turn; returns the path of every turn. */
  begin?: (url: string) => Promise<string>;
  /** A query of the command line, which has no route in the API: asks the database directly. */
  ask?: (database: Database, turn: number) => Promise<unknown>;
};

type Filter = Record<string, string>;
type Filters = Record<string, (turn: number) => Filter>;

/** Example messages, some of each kind. */
export type Examples = {
  delivered: string[];
  pending: string[];
  dead: string[];
  behind: string[];
  /** Dead letters as `ID/requests/DESTINATION`. */
  requests: string[];
  jobs: string[];
};

/** The field of the payloads that can be searched. */
export const searchedField = 'total';

export async function findExamples(client: pg.Client): Promise<Examples> {
  const ids = async (sql: string): Promise<string[]> => {
    const { rows } = await client.query<{ id: string }>(sql);
    return rows.map(({ id }) => id);
  };
  return {
    delivered: await ids(
      `SELECT x.message_id AS id FROM generate_series(0, 29) d CROSS JOIN LATERAL (
         SELECT a.message_id FROM outbox.attempts a WHERE a.message_id >= outbox.id_at(now() - d * interval '1 day' - interval '1 hour')
           AND a.state = 'dispatched' ORDER BY a.message_id LIMIT 1) x`,
    ),
    pending: await ids('SELECT message_id AS id FROM outbox.deliveries LIMIT 20'),
    dead: await ids('SELECT message_id AS id FROM outbox.dead_letters ORDER BY dead_at LIMIT 20'),
    behind: await ids(
      'SELECT message_id AS id FROM outbox.deliveries WHERE key_id IS NOT NULL ORDER BY sequence DESC LIMIT 20',
    ),
    requests: await ids(
      `SELECT l.message_id || '/requests/' || d.name AS id FROM outbox.dead_letters l JOIN outbox.destinations d ON d.id = l.destination_id
        ORDER BY l.dead_at LIMIT 20`,
    ),
    jobs: await ids('SELECT id FROM outbox.jobs'),
  };
}

export function callsOf(size: Size, examples: Examples): Call[] {
  const filters = filtersOf(size, examples);
  const statuses = Object.keys(filters).filter((name) => name.startsWith('status'));
  const pairs = Object.keys(filters).flatMap((one, index, all) =>
    all
      .slice(index + 1)
      .filter((other) => !(statuses.includes(one) && statuses.includes(other)) && other !== 'id')
      .filter((other) => !(one === 'topic' && other === 'topics'))
      .map((other) => [one, other] as const),
  );
  const messages = (filter: Filter): string =>
    `/api/messages?${new URLSearchParams({ ...filter, limit: '50' }).toString()}`;
  return [
    { name: 'messages', kind: 'alone', path: () => messages({}) },
    ...Object.entries(filters).map(([name, filter]) => ({
      name: `messages ${name}`,
      kind: 'alone' as const,
      path: (turn: number) => messages(filter(turn)),
    })),
    ...['', ...Object.keys(filters).filter((name) => name !== 'id')].map((name) => ({
      name: `messages ${name}`.trim(),
      kind: 'deep' as const,
      path: (turn: number) => messages(filters[name]?.(turn) ?? {}),
    })),
    ...pairs.map(([one, other]) => ({
      name: `messages ${one} + ${other}`,
      kind: 'pair' as const,
      path: (turn: number) =>
        messages({ ...filters[one]?.(turn), ...filters[other]?.(7 * turn + 3) }),
    })),
    ...screens(examples),
  ];
}

function filtersOf(size: Size, examples: Examples): Filters {
  const of = (list: readonly string[], turn: number): string => list[turn % list.length] ?? '';
  return {
    ...Object.fromEntries(listedStatuses.map((status) => [`status=${status}`, () => ({ status })])),
    destination: (turn) => ({ destination: of(common.destinations, turn) }),
    topic: (turn) => ({ topic: of(common.topics, 11 * turn) }),
    topics: (turn) => ({ topic: of(common.topics, 11 * turn).replace(/\..*/, '.*') }),
    tenant: (turn) => ({ tenantId: `tenant-${(turn * turn * 37) % common.tenants}` }),
    key: (turn) => ({ key: `customer-${1 + ((turn * turn * 101) % keysOf(size))}` }),
    code: (turn) => ({ errorCode: of(common.codes, 7 * turn) }),
    aggregate: (turn) => ({
      aggregateType: 'order',
      aggregateId: String((turn * 7919) % 1_048_576),
    }),
    'aggregate type': (turn) => ({ aggregateType: of(['order', 'subscription', 'cart'], turn) }),
    payload: (turn) => ({ [`payload.${searchedField}`]: String((turn * 7919) % 100_000) }),
    namespace: (turn) => ({ namespace: of(['billing', 'default', 'nowhere'], turn) }),
    'time range': (turn) => ({
      from: daysAgo(1 + (turn % size.days)),
      to: daysAgo(turn % size.days),
    }),
    'time of a failure': (turn) => ({
      failedFrom: daysAgo(1 + (turn % size.days)),
      failedTo: daysAgo(turn % size.days),
    }),
    id: (turn) => ({ id: of(examples.delivered, turn) }),
  };
}

function daysAgo(days: number): string {
  return new Date(Date.now() - days * 86_400_000).toISOString();
}

function asked(name: string, ask: Required<Call>['ask']): Call {
  return { name, kind: 'command', path: () => '', ask };
}

function screens(examples: Examples): Call[] {
  const message = (kind: keyof Examples) => (turn: number) =>
    `/api/messages/${examples[kind][turn % Math.max(examples[kind].length, 1)] ?? ''}`;
  const get = (name: string, path: string): Call => ({ name, kind: 'screen', path: () => path });
  const each = (name: string, path: (turn: number) => string): Call => ({
    name,
    kind: 'screen',
    path,
  });
  const plan = (name: string, body: (turn: number) => object): Call => ({
    name: `plan: dead letters ${name}`,
    kind: 'screen',
    method: 'POST',
    path: () => '/api/dead-letters/plan',
    body: (turn) => ({ action: 'retry', ...body(turn) }),
  });
  const of = (list: readonly string[], turn: number): string => list[turn % list.length] ?? '';
  return [
    ...(['delivered', 'pending', 'dead', 'behind'] as const)
      .filter((kind) => examples[kind].length > 0)
      .map((kind): Call => ({
        name: `message and why, ${kind}`,
        kind: 'screen',
        path: message(kind),
      })),
    {
      name: 'payload',
      kind: 'screen',
      path: (turn) => `${message('delivered')(turn)}/payload`,
    },
    each('request of a try', (turn) => `/api/messages/${of(examples.requests, turn)}`),
    each('actions on a message, delivered', (turn) => `${message('delivered')(turn)}/actions`),
    each('actions on a message, dead', (turn) => `${message('dead')(turn)}/actions`),
    get('overview, 10 minutes', '/api/overview?minutes=10'),
    get('overview, 1 h', '/api/overview?minutes=60'),
    get('overview, 6 h', '/api/overview?minutes=360'),
    get('overview, 24 h', '/api/overview?minutes=1440'),
    get('overview, 7 d', '/api/overview?minutes=10080'),
    get('overview, 31 d', '/api/overview?minutes=44640'),
    {
      name: 'overview, an hour of a past day',
      kind: 'screen',
      path: (turn) => {
        const to = Date.now() - ((turn % 29) + 1) * 86_400_000;
        return `/api/overview?from=${new Date(to - 3_600_000).toISOString()}&to=${new Date(to).toISOString()}`;
      },
    },
    {
      name: 'suggestions',
      kind: 'screen',
      path: (turn) =>
        `/api/suggestions?text=${of(common.topics, 11 * turn).slice(0, 1 + (turn % 5))}`,
    },
    {
      name: 'messages of a dedupe key',
      kind: 'screen',
      path: () => '/api/messages?limit=50&dedupeKey=none',
    },
    get('health', '/api/health'),
    get('alerts', '/api/alerts'),
    get('destinations', '/api/destinations?limit=50'),
    get('destinations, most waiting', '/api/destinations?limit=50&order=waiting'),
    get('destinations, most dead', '/api/destinations?limit=50&order=dead'),
    get('destinations, searched', '/api/destinations?limit=50&search=nowhere'),
    {
      name: 'one destination',
      kind: 'screen',
      path: (turn) => `/api/destinations/${of(common.destinations, turn)}`,
    },
    {
      name: 'one destination, 30 d',
      kind: 'screen',
      path: (turn) => `/api/destinations/${of(common.destinations, turn)}/statistics?minutes=43200`,
    },
    get('relays', '/api/relays'),
    get('rollouts', '/api/rollouts'),
    get('rollout compared', '/api/rollouts/bench?limit=50'),
    get('rollout compared, with paths left out', '/api/rollouts/bench?limit=50&ignore=at'),
    get('dead letter groups', '/api/dead-letters/groups'),
    get('jobs', '/api/dead-letters/jobs'),
    each('results of a job', (turn) => `/api/dead-letters/jobs/${of(examples.jobs, turn)}/results`),
    plan('all', () => ({})),
    plan('of a destination', (turn) => ({ destination: of(common.destinations, turn) })),
    plan('of a code', (turn) => ({ errorCode: of(common.codes, turn) })),
    plan('of a topic', (turn) => ({ topic: of(common.topics, turn) })),
    plan('of a tenant', (turn) => ({ tenantId: `tenant-${turn % common.tenants}` })),
    plan('of a destination and a code', (turn) => ({
      destination: of(common.destinations, turn),
      errorCode: of(common.codes, 3 * turn),
    })),
    get('keys', '/api/keys?limit=50'),
    get('replays', '/api/replays'),
    {
      name: 'keys of a destination',
      kind: 'screen',
      path: (turn) => `/api/keys?limit=50&destination=${of(common.destinations, turn)}`,
    },
    get('database', '/api/database'),
    get('audit', '/api/audit?limit=50'),
    get('audit of an actor', '/api/audit?limit=50&actor=api:ada'),
    get('audit of an actor who did nothing', '/api/audit?limit=50&actor=api:unknown'),
    get('audit of an action', '/api/audit?limit=50&action=start_replay'),
    get('audit of a destination', '/api/audit?limit=50&destination=crm'),
    get('audit of a destination where nothing was done', '/api/audit?limit=50&destination=mail'),
    {
      name: 'audit of a day',
      kind: 'screen',
      path: (turn) => `/api/audit?limit=50&from=${daysAgo(turn + 2)}&to=${daysAgo(turn + 1)}`,
    },
    ...['topics', 'tenants', 'destinations'].flatMap((by) =>
      ['1h', '24h', '30d'].map((period) =>
        get(`report of ${by}, ${period}`, `/api/reports/${by}?period=${period}`),
      ),
    ),
    get('catalogue', '/api/catalogue'),
    each(
      'event of the catalogue',
      (turn) => `/api/catalogue/event?topic=${of(common.topics, turn)}`,
    ),
    get('flow', '/api/flow'),
    get('endpoints', '/api/endpoints?limit=50'),
    get('endpoints, problems first', '/api/endpoints?limit=50&order=problems'),
    get('endpoints, searched', '/api/endpoints?limit=50&search=shop-2'),
    get('one endpoint', '/api/endpoints/shop-1'),
    get('deliveries of an endpoint', '/api/endpoints/shop-1/messages?limit=20'),
    {
      ...get('live tail, a look', ''),
      // each tail that begins counts against a limit, so that all looks are those of one
      async begin(url) {
        const { tail } = (await (await fetch(`${url}/api/tail`)).json()) as { tail: string };
        return `/api/tail/${tail}`;
      },
    },
    get('session', '/api/session'),
    get('description of the API', '/api/openapi.json'),
    get('metrics', '/metrics'),
    get('health for a probe', '/healthz'),
    asked('plan of a replay: a day of a topic', async (database, turn) =>
      planReplay(database, {
        destination: of(common.destinations, turn),
        topic: of(common.topics, turn),
        since: new Date(daysAgo(turn + 2)),
        until: new Date(daysAgo(turn + 1)),
      }),
    ),
    asked('list of replays', async (database) => listReplays(database)),
    asked('tail, from now on', async (database) => {
      const tail = await Tail.start(database, {});
      await tail.look(100);
    }),
    asked('tail of a minute ago', async (database) => {
      const tail = await Tail.start(database, { since: new Date(Date.now() - 60_000) });
      await tail.look(100);
    }),
  ];
}
