// The ports of a rolling upgrade: while relays are rolled, somebody looks at the page of the version before and acts on
// it. Its server has the rights of its roles alone, is there before the schema changes and is started again after, and
// every one of its routes answers as it did; what an operator does there is done.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { startPostgres } from '../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { json } from '../support/cli.js';
import { only } from '../support/only.js';
import { waitFor } from '../support/wait.js';
import { Checkout, checkOut, findBaseline } from './upgrade/checkout.js';
import { misfits } from './upgrade/load.js';
import { Port } from './upgrade/port.js';

const commit = findBaseline();
const present = new Checkout(process.cwd());

describe.skipIf(commit === undefined)('the port of the version before', () => {
  let before: Checkout;
  let server: PostgresServer;
  let pool: pg.Pool;

  beforeAll(async () => {
    before = checkOut(commit ?? '');
    server = await startPostgres();
    pool = new pg.Pool({ connectionString: server.url });
    pool.on('error', () => undefined);
  }, 120_000);
  afterAll(async () => {
    await pool.end();
    await server.remove();
    before.remove();
  });

  async function run(version: Checkout, ...args: string[]) {
    const ended = await version.waybill(server.url, args);
    expect(ended, `${args.join(' ')}: ${ended.stderr}`).toMatchObject({ code: 0 });
    return ended;
  }

  /** The schema, the roles and the token are of the version before; gives what starts its port. */
  async function install(): Promise<() => Promise<Port>> {
    await run(before, 'migrate', 'up');
    await run(before, 'roles', 'install');
    await pool.query(`CREATE ROLE old_relay LOGIN IN ROLE waybill_relay;
      CREATE ROLE old_server LOGIN IN ROLE waybill_control, waybill_operator`);
    const added = await run(before, 'tokens', 'add', 'ops', '--scope', 'admin', '--json');
    const { token } = json(added) as { token: string };
    const urlOf = (login: string) => {
      const url = new URL(server.url);
      url.username = login;
      return url.href;
    };
    const logins = { relayUrl: urlOf('old_relay'), serverUrl: urlOf('old_server'), token };
    return () => Port.start(before, logins);
  }

  async function value<T>(sql: string, values: unknown[] = []): Promise<T> {
    const { rows } = await pool.query<{ value: T }>(`SELECT (${sql}) AS value`, values);
    return only(rows).value;
  }

  const enqueue = (topic: string, options = '') =>
    value<string>(`SELECT id FROM outbox.enqueue($1, '{"n": 1}'${options})`, [topic]);
  const statusOf = (id: string) =>
    value<string>(
      `SELECT status FROM outbox.message_status WHERE message_id = $1 AND destination = 'crm'`,
      [id],
    );
  const reaches = (id: string, status: string) =>
    waitFor(async () => (await statusOf(id)) === status, { what: `${id} to be ${status}` });

  /** What operators do, as often as they like. */
  async function operate(port: Port, percent: number): Promise<void> {
    await port.act('/api/destinations/crm/pause');
    const waiting = await enqueue('user.good');
    expect(await port.act(`/api/messages/${waiting}/delete`)).toEqual({
      discarded: 0,
      cancelled: 1,
    });
    expect(await statusOf(waiting)).toBe('discarded');
    const held = await enqueue('user.good');
    await port.act('/api/destinations/crm/resume');
    await reaches(held, 'delivered');
    const { messageId } = (await port.act('/api/destinations/crm/test')) as { messageId: string };
    await reaches(messageId, 'delivered');

    const letters = [await enqueue('user.bad'), await enqueue('user.bad')];
    for (const id of letters) await reaches(id, 'dead');
    const filter = { action: 'discard', destination: 'crm', ids: letters };
    const plan = (await port.act('/api/dead-letters/plan', filter)) as Record<string, unknown>;
    const { count, deadBefore } = plan;
    expect(count).toBe(2);
    const job = (await port.act('/api/dead-letters/jobs', { ...filter, count, deadBefore })) as {
      id: string;
    };
    for (const id of letters) await reaches(id, 'discarded');
    await waitFor(
      async () =>
        (await port.ask('GET', `/api/dead-letters/jobs/${job.id}`)).text.includes('"done":2'),
      { what: 'the job to say so' },
    );
    await port.act(`/api/dead-letters/jobs/${job.id}`, {}, 'DELETE');

    await port.act('/api/rollouts/signs', { percent });
    expect(await value(`SELECT percent::int FROM outbox.rollouts`)).toBe(percent);
    await port.act('/api/shadow', { rollout: 'signs', reference: randomUUID(), body: { n: 1 } });
    await port.act('/drain');
    expect(await port.logIn()).toMatchObject({ scope: 'admin', authentication: 'tokens' });
  }

  it('answers and acts over the present schema as over its own, and again when it is started anew', async () => {
    const start = await install();
    const running = await start();
    const delivered = await enqueue('user.good');
    const dead = await enqueue('user.bad', `, key => 'k'`);
    const behind = await enqueue('user.good', `, key => 'k'`);
    const slow = await enqueue('user.slow');
    const later = await enqueue('user.good', `, delay => '1 hour'`);
    await enqueue('nobody.wants.it');
    await reaches(delivered, 'delivered');
    await reaches(dead, 'dead');
    const failedOnce = `SELECT tries = 1 FROM outbox.deliveries WHERE message_id = $1`;
    await waitFor(() => value(failedOnce, [slow]), { what: 'a try that failed' });
    const shown = await running.looks(dead);
    expect(shown.size).toBeGreaterThan(15);

    await run(present, 'migrate', 'up');
    const shownAfter = await running.looks(dead);
    for (const [route, names] of shown)
      expect(shownAfter.get(route), route).toEqual(expect.arrayContaining(names));
    await operate(running, 100);
    await running.looks(dead);
    await running.stop();

    const again = await start();
    await operate(again, 50);
    expect(await again.act('/api/retrying/retry', { destination: 'crm' })).toEqual({ madeDue: 1 });
    await reaches(slow, 'delivered');
    expect(await again.act(`/api/messages/${later}/retry`)).toEqual({ retried: 0, madeDue: 1 });
    await reaches(later, 'delivered');
    expect(await again.act(`/api/keys/${dead}/retry`, { destination: 'crm' })).toEqual({
      changed: 1,
    });
    const triedTwice = `SELECT count(*) = 2 FROM outbox.attempts WHERE message_id = $1`;
    await waitFor(() => value(triedTwice, [dead]), { what: 'another try' });
    await reaches(dead, 'dead');
    expect(await again.act(`/api/keys/${dead}/skip`, { destination: 'crm' })).toEqual({
      changed: 1,
    });
    await reaches(behind, 'delivered');
    await again.looks(dead);
    await again.stop();

    const recorded = `SELECT array_agg(DISTINCT action ORDER BY action) FROM outbox.operator_actions WHERE actor = 'api:ops'`;
    expect((await value<string[]>(recorded)).join(' ')).toBe(
      'cancel discard_dead_letters pause resume retry_dead_letters retry_now rollout send_test skip_dead_letters',
    );
    const logs = running.log + again.log + readFileSync(server.logFile, 'utf8');
    expect(logs.split('\n').filter((line) => misfits.test(line))).toEqual([]);
  }, 120_000);
});
