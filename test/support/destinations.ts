// Defines destinations and routes as a configuration would.

import type pg from 'pg';

import { only } from './only.js';
import type { TestDatabase } from './postgres.js';

export type QueueOptions = {
  kind?: string;
  maxAttempts?: number;
  retryBaseMs?: number;
  retryMaxMs?: number;
  retryDelaysMs?: number[];
  whenDead?: 'continue' | 'block' | 'park';
  fairness?: 'none' | 'tenant';
};

export async function defineDestination(
  db: TestDatabase,
  name: string,
  options: QueueOptions = {},
  on: Pick<pg.Client, 'query'> | Pick<pg.Pool, 'query'> = db.pool,
): Promise<number> {
  const {
    kind = 'test',
    maxAttempts = 10,
    retryBaseMs = 1000,
    retryMaxMs = 300_000,
    retryDelaysMs = null,
    whenDead = 'continue',
    fairness = 'none',
  } = options;
  await on.query(
    `INSERT INTO ${db.quoted}.owners (name) VALUES ('default') ON CONFLICT DO NOTHING`,
  );
  const { rows } = await on.query<{ id: number }>(
    `SELECT ${db.quoted}.store_destination('default', NULL, $1, $2, $3, $4, $5, $6, $7, $8) AS id`,
    [name, kind, maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs, whenDead, fairness],
  );
  return only(rows).id;
}

export async function addRoute(
  db: TestDatabase,
  destinationId: number,
  topic: string,
  filter: { namespace?: string; tenantId?: string } = {},
): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.routes (destination_id, topic, namespace, tenant_id, owner) VALUES ($1, $2, $3, $4, 'default')`,
    [destinationId, topic, filter.namespace ?? null, filter.tenantId ?? null],
  );
}
