// Demo traffic of `waybill dev`: a small registration site. Events are written in a transaction together with a row
// of the application, as in a real one. Some deliveries fail and are retried, and a few become dead letters, so
// there is something to see.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import pg from 'pg';

import type { Config } from '../config.js';
import { handler } from '../destinations/handler.js';
import { webhook } from '../destinations/webhook/webhook.js';
import { reject, retry } from '../core/outcome.js';
import { createOutbox } from '../producer/outbox.js';
import type { DefinedEvents, EventDefinition } from '../producer/events/event-definitions.js';

/** The events for the catalogue of the page. An application would use a schema library such as zod, which checks payloads too. */
const events: DefinedEvents = {
  definitions: {
    'user.registered': described('A user has registered.', {
      userId: { type: 'string', examples: ['4711'] },
      email: { type: 'string', format: 'email', examples: ['ada@example.com'] },
    }),
    'payment.succeeded': described('A user has paid.', {
      userId: { type: 'string', examples: ['4711'] },
      amount: { type: 'integer', minimum: 1, examples: [129] },
      currency: { type: 'string', examples: ['EUR'] },
    }),
  },
};

function described(description: string, properties: Record<string, object>): EventDefinition {
  return {
    schema: {
      '~standard': {
        version: 1,
        vendor: 'demo',
        validate: (value: unknown) => ({ value, issues: undefined }),
      },
    },
    jsonSchema: { type: 'object', description, properties, required: Object.keys(properties) },
  };
}

const tenants = ['acme', 'globex', 'initech', 'umbrella'];

const retryPolicy = { maxAttempts: 4, baseMs: 500, maxMs: 4000 };

export function demoConfig(databaseUrl: string, schema: string, partnerUrl: string): Config {
  return {
    database: { url: databaseUrl, schema },
    destinations: {
      crm: handler(
        () =>
          chance(0.08)
            ? retry({ code: 'crm_busy', message: 'the CRM is busy, try again' })
            : undefined,
        { retry: retryPolicy },
      ),
      billing: handler(
        (message) => {
          const { amount } = message.payload as { amount: number };
          return amount > 495
            ? reject({ code: 'amount_refused', message: `${amount} is above the limit` })
            : undefined;
        },
        { retry: retryPolicy },
      ),
      partner: webhook({
        url: `${partnerUrl}/registrations`,
        allowedNetworks: ['127.0.0.0/8'],
        retry: retryPolicy,
      }),
    },
    routes: [
      { topic: 'user.*', to: 'crm' },
      { topic: 'user.registered', to: 'partner' },
      { topic: 'payment.*', to: 'billing' },
    ],
    events,
    relay: { name: 'demo' },
    server: { searchablePayloadFields: ['userId', 'email'] },
  };
}

/** The partner's server, which fails now and then. */
export async function startPartner(): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(chance(0.1) ? 503 : 204).end();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export type Traffic = { enqueued(): number; stop(): Promise<void> };

export async function startTraffic(
  databaseUrl: string,
  schema: string,
  perSecond: number,
): Promise<Traffic> {
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 4 });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  await pool.query(
    'CREATE TABLE IF NOT EXISTS demo_registrations (id bigint GENERATED ALWAYS AS IDENTITY, email text NOT NULL)',
  );
  const outbox = createOutbox({ schema });
  let enqueued = 0;
  const stop = new AbortController();

  async function register(): Promise<void> {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      const email = `user${Math.floor(Math.random() * 1e6)}@example.com`;
      const { rows } = await client.query<{ id: string }>(
        'INSERT INTO demo_registrations (email) VALUES ($1) RETURNING id',
        [email],
      );
      const userId = rows[0]?.id ?? '0';
      const user = {
        aggregateType: 'user',
        aggregateId: userId,
        key: `user/${userId}`,
        // the first ones have more
        tenantId: tenants[Math.floor(tenants.length * Math.random() ** 2)] ?? '',
      };
      const sent = await outbox.enqueueMany(client, [
        { ...user, topic: 'user.registered', payload: { userId, email } },
        ...(chance(0.3)
          ? [
              {
                ...user,
                topic: 'payment.succeeded',
                payload: { userId, amount: Math.ceil(Math.random() * 500), currency: 'EUR' },
              },
            ]
          : []),
      ]);
      // some customers change their minds: the rollback removes their messages too
      const commit = !chance(0.05);
      await client.query(commit ? 'COMMIT' : 'ROLLBACK');
      if (commit) enqueued += sent.length;
      client.release();
    } catch (error) {
      client.release(true);
      throw error;
    }
  }

  const running = (async () => {
    while (!stop.signal.aborted) {
      // the database may be away for a moment: continue when it is back
      await register().catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 1000 / perSecond));
    }
  })();

  return {
    enqueued: () => enqueued,
    async stop() {
      stop.abort();
      await running;
      await pool.end();
    },
  };
}

function chance(probability: number): boolean {
  return Math.random() < probability;
}
