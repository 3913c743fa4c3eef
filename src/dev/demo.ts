// Demo traffic of `waybill dev`: a small registration site. Events are written in a transaction together with a row
// of the application, as in a real one. Some deliveries fail and are retried, and a few become dead letters, so
// there is something to see.

import type { IncomingMessage, ServerResponse } from 'node:http';

import pg from 'pg';

import type { Config } from '../config.js';
import { handler } from '../destinations/handler.js';
import { webhook } from '../destinations/webhook/webhook.js';
import { reject, retry } from '../core/outcome.js';
import { createOutbox } from '../producer/outbox.js';

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
        url: `${partnerUrl}/demo/partner`,
        allowedNetworks: ['127.0.0.0/8'],
        retry: retryPolicy,
      }),
    },
    routes: [
      { topic: 'user.*', to: 'crm' },
      { topic: 'user.registered', to: 'partner' },
      { topic: 'payment.*', to: 'billing' },
    ],
    relay: { name: 'demo' },
  };
}

/** The partner's server, which fails now and then. */
export function answerPartner(request: IncomingMessage, response: ServerResponse): boolean {
  if (request.url !== '/demo/partner' || request.method !== 'POST') return false;
  request.resume();
  response.writeHead(chance(0.1) ? 503 : 204).end();
  return true;
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
      const user = { aggregateType: 'user', aggregateId: userId, key: `user/${userId}` };
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
