// Health over HTTP: the status for every client; the alarms, with remedies, for clients with a token.

import { describe, expect, it, onTestFinished } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { resolveServerOptions } from '../../src/server/options.js';
import { startServer } from '../../src/server/server.js';
import { cli, environmentOf } from '../support/cli.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase({ allPartitions: true });

type Health = { status: string; reasons: string[]; counts: Record<string, number> };

async function serve(database: Database): Promise<string> {
  const server = await startServer(resolveServerOptions({ port: 0, authentication: 'none' }), {
    database,
    isReady: () => true,
    // a test must see its own changes at once
    sharedForMs: 0,
  });
  onTestFinished(() => server.close());
  return server.url;
}

/** The status and the numbers of /healthz, and the reasons of the API. */
async function ask(url: string): Promise<Health> {
  const [open, api] = await Promise.all([fetch(`${url}/healthz`), fetch(`${url}/api/health`)]);
  expect([open.status, api.status]).toEqual([200, 200]);
  const { health } = (await api.json()) as { health: { alarm: string | null }[] };
  const reasons = health.flatMap(({ alarm }) => alarm ?? []);
  return { ...((await open.json()) as Omit<Health, 'reasons'>), reasons };
}

describe('/healthz', () => {
  it('N13 is ok while nothing waits for long, however much is dead, and degraded while a message is unrouted', async () => {
    const url = await serve(openDatabase(db));
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await queue.kill(id);
    await queue.enqueueOne();
    const { status, reasons } = await ask(url);
    expect({ status, reasons }).toEqual({ status: 'ok', reasons: [] });
    await db.query(`SELECT ${db.quoted}.enqueue('never.routed')`);
    const { counts, ...unwell } = await ask(url);
    expect(unwell).toMatchObject({
      status: 'degraded',
      reasons: [expect.stringMatching(/^1 message without a route: .*waybill unrouted route/)],
    });
    expect(counts).toMatchObject({ dead: 1, unrouted: 1, waiting: 1 });
    await db.query(`SELECT ${db.quoted}.discard_unrouted()`);
  });

  it('N13 is degraded when a due delivery is not claimed, unless its destination is paused', async () => {
    const url = await serve(openDatabase(db));
    const [late, paused] = [await makeQueue(db), await makeQueue(db)];
    for (const queue of [late, paused]) await queue.enqueueOne();
    const due = (secondsAgo: number) =>
      db.query(
        `UPDATE ${db.quoted}.deliveries SET available_at = clock_timestamp() - $2::int * interval '1 second'
          WHERE destination_id = ANY ($1)`,
        [[late.id, paused.id], secondsAgo],
      );
    await due(290);
    expect(await ask(url)).toMatchObject({ status: 'ok' });
    await due(310);
    const words = (names: string) =>
      `deliveries have been due for more than 300 seconds at ${names}: is a relay or a worker running that serves them, and does it keep up?`;
    expect(await ask(url)).toMatchObject({
      status: 'degraded',
      reasons: [words(`${late.name}, ${paused.name}`)],
    });
    const pause = (name: string) => db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [name]);
    await pause(paused.name);
    expect(await ask(url)).toMatchObject({ status: 'degraded', reasons: [words(late.name)] });
    const status = await cli(['status'], { environment: environmentOf(db) });
    expect(status.stderr).toContain(`warning: ${words(late.name)}`);
    await pause(late.name);
    const { status: last, counts } = await ask(url);
    expect(last).toBe('ok');
    expect(counts['oldest_waiting_seconds'], 'still shown').toBeGreaterThan(300);
  });

  it('N13 is degraded when partitions run out', async () => {
    const url = await serve(openDatabase(db));
    const { rows } = await db.query<{ drop: string }>(
      `SELECT string_agg(format('DROP TABLE %s', partition), ';') AS drop
         FROM ${db.quoted}.partition_bounds('${db.quoted}.attempts') WHERE day > (now() AT TIME ZONE 'UTC')::date + 29`,
    );
    await db.query(only(rows).drop);
    const { status, reasons } = await ask(url);
    await db.query(`SELECT ${db.quoted}.make_partitions()`);
    expect({ status, reasons }).toEqual({
      status: 'degraded',
      reasons: [
        'partitions exist for 29 days ahead: run waybill maintain, or find out why no relay makes them',
      ],
    });
    expect(await ask(url)).toMatchObject({ status: 'ok', reasons: [] });
  });

  it('N13 is down, with 503, when the database does not answer', async () => {
    const options = resolveDatabaseOptions({ url: 'postgresql://127.0.0.1:1/none' });
    const database = new Database(options, { connections: 1, applicationName: 'test' });
    onTestFinished(() => database.close());
    const response = await fetch(`${await serve(database)}/healthz`);
    expect(response.status).toBe(503);
    expect(await response.json()).toEqual({ status: 'down' });
  });
});
