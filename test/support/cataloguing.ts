// Actions of the application and of the service of examples/cataloguing, each with its own role.

import { createHash, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

import pg from 'pg';

import { migrateUp } from '../../src/database/migrate.js';
import type { TestDatabase } from './postgres.js';

export type JobEvent = {
  event_id: string;
  table_name: string;
  record_id: string;
  event_type: string;
  organization_id: string;
  payload: Record<string, unknown>;
  created_at: Date;
  processed_at: Date | null;
  retry_count: number;
  last_error: string | null;
};

/** The SQL of the example. */
export const catalogueSql = (file: string): string =>
  readFileSync(`examples/cataloguing/${file}`, 'utf8');

/** Creates the roles. They belong to the server: another file may create them at the same moment. */
export async function makeCatalogueRoles(client: {
  query: (sql: string) => Promise<unknown>;
}): Promise<void> {
  const [roles = ''] = catalogueSql('schema.sql').split('CREATE TABLE');
  for (let tries = 1; ; tries++) {
    try {
      await client.query(roles);
      return;
    } catch (error) {
      const { code = '' } = error as { code?: string };
      if (tries === 5 || !['XX000', '42710', '23505'].includes(code)) throw error;
    }
  }
}

export async function installCatalogue(db: TestDatabase): Promise<void> {
  await migrateUp({ url: db.url });
  await makeCatalogueRoles(db);
  await db.query(catalogueSql('schema.sql'));
}

/** The id of an organisation: the same for the same name. */
export function organizationId(name: string): string {
  const hex = createHash('md5').update(name).digest('hex');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

/** A connection with the login of the service and no other rights. */
export async function connectService(db: TestDatabase): Promise<pg.Client> {
  const service = new pg.Client({ connectionString: serviceUrl(db) });
  // the database may be dropped while it is open
  service.on('error', () => undefined);
  await service.connect();
  return service;
}

type Claimed = { message_id: string; aggregate_id: string };

export function serviceUrl(db: TestDatabase): string {
  const url = new URL(db.url);
  url.username = 'cataloguing_service';
  url.password = '';
  return url.href;
}

export async function addJobs(
  app: pg.Client,
  organization: string,
  count: number,
): Promise<string[]> {
  const { rows } = await app.query<{ job_id: string }>(
    'INSERT INTO cataloging_jobs (organization_id) SELECT $1::uuid FROM generate_series(1, $2::int) RETURNING job_id',
    [organizationId(organization), count],
  );
  return rows.map(({ job_id }) => job_id);
}

export async function setStatus(
  app: pg.Client,
  organization: string,
  status: string,
): Promise<void> {
  await app.query('UPDATE cataloging_jobs SET status = $2 WHERE organization_id = $1', [
    organizationId(organization),
    status,
  ]);
}

export async function jobEvents(service: pg.Client, organization: string): Promise<JobEvent[]> {
  const { rows } = await service.query<JobEvent>(
    'SELECT * FROM _private.outbox WHERE organization_id = $1 ORDER BY event_id',
    [organizationId(organization)],
  );
  return rows;
}

export async function claimNotifications(service: pg.Client, token: string): Promise<Claimed[]> {
  const { rows } = await service.query<Claimed>(
    "SELECT * FROM outbox.claim('notifications', $1, 1000)",
    [token],
  );
  return rows;
}

/** Empties the queue, so that no message of an earlier test is pending. */
export async function notifyAll(service: pg.Client): Promise<void> {
  const token = randomUUID();
  for (;;) {
    const ids = (await claimNotifications(service, token)).map(({ message_id }) => message_id);
    if (ids.length === 0) return;
    await service.query('SELECT outbox.mark_delivered($1, $2)', [token, ids]);
  }
}

/** Creates events of a past day with this ending; returns their ids. */
export async function pastEvents(
  db: TestDatabase,
  daysAgo: number,
  count: number,
  ended: 'dispatched' | 'failed' = 'dispatched',
): Promise<string[]> {
  await db.query(
    `SELECT outbox.make_partitions(-$1::int, (now() AT TIME ZONE 'UTC')::date - $1::int)`,
    [daysAgo],
  );
  const { rows } = await db.query<{ id: string }>(
    `WITH made AS (
       INSERT INTO outbox.messages (bytes, id, created_at, transaction_id, namespace, topic, tenant_id, payload)
       SELECT 2, outbox.id_at(t), t, pg_current_xact_id(), 'default', 'job.created', $4, '{}'
         FROM generate_series(1, $2::int) n, LATERAL (SELECT now() - $1::int * interval '1 day' + n * interval '1 ms' AS t) x
       RETURNING id)
     INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
     SELECT m.id, d.id, 1, 1, $3, now() FROM made m, outbox.destinations d WHERE d.name = 'notifications'
     RETURNING message_id AS id`,
    [daysAgo, count, ended, organizationId('past')],
  );
  return rows.map(({ id }) => id);
}
