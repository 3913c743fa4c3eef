// PostgreSQL restarts during long commands of an operator: a tail misses nothing, and a replay sends everything once.

import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { startCli } from '../support/cli.js';
import { waitFor } from '../support/wait.js';

let server: PostgresServer;
let pool: pg.Pool;

beforeAll(async () => {
  server = await startPostgres();
  await migrateUp({ url: server.url });
  pool = new pg.Pool({ connectionString: server.url });
  pool.on('error', () => {});
  await pool.query("SELECT outbox.define_destination('crm')");
  await pool.query(
    "INSERT INTO outbox.routes (destination_id, topic) SELECT id, '*' FROM outbox.destinations",
  );
});
afterAll(async () => {
  await pool.end();
  await server.remove();
});

async function enqueue(topic: string, count = 1): Promise<string[]> {
  const { rows } = await pool.query<{ id: string }>(
    `SELECT (outbox.enqueue($1, '{}')).id FROM generate_series(1, $2)`,
    [topic, count],
  );
  return rows.map(({ id }) => id);
}

async function scalar(sql: string): Promise<number> {
  const { rows } = await pool.query<{ value: number }>(`SELECT (${sql})::int AS value`);
  return rows[0]?.value ?? 0;
}

test.each(['fast', 'immediate'] as const)(
  'a tail continues after PostgreSQL was stopped (%s) and started again, and says so',
  async (mode) => {
    const topic = `tail.${mode}`;
    const tail = startCli(['tail', '--topic', topic], {
      environment: { DATABASE_URL: server.url },
    });
    await tail.says('following');
    const [before = ''] = await enqueue(topic);
    await tail.says(before);
    await server.stop(mode);
    await tail.says(/the database is unavailable \(.*\): reconnecting/);
    await server.restart();
    // on the first connection after the restart, perhaps before the tail has its own
    const [after = ''] = await enqueue(topic);
    await tail.says('connected again');
    await tail.says(after);
    tail.process.kill('SIGINT');
    const { code, stdout, stderr } = await tail.ended();
    expect(code).toBe(0);
    expect(stdout.match(/enqueued/g)).toHaveLength(2);
    expect(stderr.match(/reconnecting/g)).toHaveLength(1);
  },
);

test('M5 a replay continues after PostgreSQL crashed and restarted: nothing twice, nothing missing', async () => {
  await enqueue('replayed', 40);
  const deliver = `WITH c AS (SELECT array_agg(message_id) AS ids FROM outbox.claim('crm', '00000000-0000-0000-0000-000000000001', 1000)) SELECT outbox.mark_delivered('00000000-0000-0000-0000-000000000001', ids) FROM c`;
  await pool.query(deliver);
  const replay = startCli(
    ['replay', '--destination', 'crm', '--topic', 'replayed', '--rate', '12', '--yes', '--json'],
    { environment: { DATABASE_URL: server.url } },
  );
  await waitFor(async () => (await scalar('SELECT count(*) FROM outbox.deliveries')) > 0, {
    what: 'the replay to begin',
    timeoutMs: 60_000,
  });
  await server.crash();
  await replay.says('the database does not answer: trying again');
  await server.restart();
  const { code, stdout } = await replay.ended();
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({
    state: 'done',
    replayed: 40,
    waiting: 0,
    processing: 0,
  });
  await pool.query(deliver);
  expect(
    await scalar(
      "SELECT count(*) FROM (SELECT message_id FROM outbox.attempts JOIN outbox.messages m ON m.id = message_id WHERE m.topic = 'replayed' GROUP BY 1 HAVING count(*) = 2) x",
    ),
  ).toBe(40);
});
