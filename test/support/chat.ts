// The chat platform of examples/chat-usage on a test's database: its schema, logins and calls. Everything runs with the
// login that would run it: producers, dispatchers and readers have pools of their own.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { afterAll, beforeAll, inject } from 'vitest';

import { createStore, enqueue } from '../../examples/chat-usage/store.js';
import type { Store } from '../../examples/chat-usage/store.js';
import { urlAs } from './logins.js';
import type { ChatLogin } from './logins.js';
import { inTransaction, testDatabase } from './postgres.js';
import type { TestDatabase } from './postgres.js';

export const folder = path.resolve('examples/chat-usage');
export const sqlOf = (file: string): string => readFileSync(path.join(folder, file), 'utf8');

/** Its logins belong to the server, which other files share, so only one file creates them at a time. */
export async function installChat(
  db: Pick<TestDatabase, 'url'>,
  files = ['schema.sql', 'namespaces.sql', 'domain.sql'],
) {
  const lock = new pg.Client({ connectionString: inject('serverUrl') });
  const client = new pg.Client({ connectionString: db.url });
  await lock.connect();
  await client.connect();
  try {
    await lock.query(`SELECT pg_advisory_lock(hashtext('examples/chat-usage'))`);
    for (const file of files) await client.query(sqlOf(file));
  } finally {
    await client.end();
    await lock.end();
  }
}

export type Event = {
  id: string;
  namespace: string;
  topic: string;
  tenant_id: string | null;
  dedupe_key: string | null;
  payload: unknown;
  status: string;
  attempts: number;
  next_attempt_at: Date | null;
  locked_by: string | null;
  locked_until: Date | null;
  last_error: string | null;
  created_at: Date;
  updated_at: Date;
};

export type Chat = {
  db: TestDatabase;
  pool: (login: ChatLogin) => pg.Pool;
  store: (namespace: string, worker_id?: string) => Store;
  define: (namespace: string, settings?: [number, string, string]) => Promise<void>;
  put: (namespace: string, count: number) => Promise<string[]>;
  events: (where: string, ...values: unknown[]) => Promise<Event[]>;
  expire: (namespace: string) => Promise<void>;
  due: (namespace: string) => Promise<void>;
};

/** Registers the hooks that install the example. */
export function chatPlatform(): Chat {
  const db = testDatabase();
  const pools = new Map<string, pg.Pool>();
  const pool = (login: ChatLogin): pg.Pool => {
    const open =
      pools.get(login) ?? new pg.Pool({ connectionString: urlAs(db.url, login), max: 6 });
    if (!pools.has(login)) open.on('error', () => undefined);
    pools.set(login, open);
    return open;
  };
  beforeAll(() => installChat(db));
  afterAll(async () => {
    await Promise.all([...pools.values()].map((each) => each.end()));
  });
  return {
    db,
    pool,
    store: (namespace, worker_id = randomUUID()) =>
      createStore(pool('chat_dispatcher'), { worker_id, namespace }),
    async define(namespace, settings = [3, '1 second', '300 seconds']) {
      await db.query('SELECT modkit.define_namespace($1, $2, $3, $4)', [namespace, ...settings]);
    },
    /** Sends messages 1 to count, each in its own transaction; returns their ids. */
    async put(namespace, count) {
      const ids: string[] = [];
      for (let n = 1; n <= count; n += 1)
        ids.push(
          await inTransaction(pool('chat_producer'), (client) =>
            enqueue(client, { namespace, topic: 'x', payload: { n } }),
          ),
        );
      return ids;
    },
    async events(where, ...values) {
      const { rows } = await pool('chat_reader').query<Event>(
        `SELECT * FROM public.modkit_outbox_events WHERE ${where} ORDER BY created_at, id`,
        values,
      );
      return rows;
    },
    /** Lets the leases of a namespace expire, as time would. */
    async expire(namespace) {
      await db.query(
        `UPDATE outbox.leases l SET expires_at = clock_timestamp() - interval '1 ms'
           FROM outbox.destinations d WHERE d.id = l.destination_id AND d.name = 'modkit.' || $1::text`,
        [namespace],
      );
    },
    /** Makes retries due now. */
    async due(namespace) {
      await db.query(`SELECT outbox.retry_now('modkit.' || $1::text)`, [namespace]);
    },
  };
}
