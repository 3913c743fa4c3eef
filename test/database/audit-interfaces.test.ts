// Actions through the command line and the API are recorded with their actor, and can be listed.

import os from 'node:os';

import { describe, expect, it } from 'vitest';

import { describedRoutes } from '../support/api-routes.js';
import { cli, cliOn, environmentOf, json } from '../support/cli.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { addEndpoint, endpointsOf, setKey, testKey } from '../support/endpoints.js';
import { makeBlocked, makeDead, makeRetrying } from '../support/letters.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne } from '../support/relay.js';
import { startJob, stateOf, untilJob } from '../support/jobs.js';
import { startReplay } from '../support/replays.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const me = `cli:${os.userInfo().username}`;

type Record = { actor: string; action: string; count: number };

async function lastId(): Promise<string> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT coalesce(max(id), 0) AS id FROM ${db.quoted}.operator_actions`,
  );
  return only(rows).id;
}

async function recordsAfter(id: string): Promise<Record[]> {
  const { rows } = await db.query<Record>(
    `SELECT actor, action, count::int FROM ${db.quoted}.operator_actions WHERE id > $1 ORDER BY id`,
    [id],
  );
  return rows;
}

/** A destination with a route that has a rollout of that name, at 0 percent. */
async function defineRollout(name: string): Promise<void> {
  const { rows } = await db.query<{ id: number }>(
    `SELECT ${db.quoted}.define_destination(n) AS id FROM unnest($1::text[]) n`,
    [[name, `${name}.shadow`]],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.rollouts (name, destination_id, shadow_destination_id, percent) VALUES ($1, $2, $3, 0)`,
    [name, ...rows.map(({ id }) => id)],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.routes (destination_id, topic, split_by) VALUES ($2, $1, $1)`,
    [name, rows[0]?.id],
  );
}

describe('the command line', { timeout: 120_000 }, () => {
  it('W8 records the user for every command that changes something', async () => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    await db.query('CREATE TABLE public.orders (id int PRIMARY KEY)');
    const unrouted = await defineDestination(db, 'unrouted');
    await db.query(`SELECT ${db.quoted}.enqueue('nowhere.yet', '{}')`);
    await addRoute(db, unrouted, 'nowhere.yet');
    await db.query(`SELECT ${db.quoted}.enqueue('never.wanted', '{}')`);
    await defineDestination(db, 'reader');
    await db.query(`SELECT ${db.quoted}.define_cursor('reader')`);
    await defineRollout('cli');
    await makeBlocked(queue, 'one');
    const at = ['--destination', queue.name, '--yes'];
    const commands: [string[], string[]][] = [
      [['destinations', 'pause', queue.name, '--reason', 'noise'], ['pause']],
      [['destinations', 'resume', queue.name], ['resume']],
      [['dead-letters', 'skip', ...at], ['skip_dead_letters']],
      [['dead-letters', 'retry', ...at], ['retry_dead_letters']],
      [['unrouted', 'route', '--yes'], ['route_unrouted']],
      [['unrouted', 'discard', '--topic', 'never.wanted', '--yes'], ['discard_unrouted']],
      [
        [
          'endpoints',
          'add',
          'https://example.com',
          '--topics',
          'a.b',
          '--name',
          'shop',
          '--all-tenants',
        ],
        ['add_endpoint'],
      ],
      [['endpoints', 'change', 'shop', '--description', 'x'], ['change_endpoint']],
      [['endpoints', 'rotate', 'shop'], ['rotate_endpoint']],
      [['endpoints', 'disable', 'shop'], ['pause']],
      [['endpoints', 'enable', 'shop'], ['resume']],
      [['endpoints', 'disable', 'shop'], ['pause']],
      [['endpoints', 'recover', 'shop', '--since', '2026-01-01T00:00:00Z'], ['resume']],
      [['endpoints', 'remove', 'shop', '--yes'], ['remove_endpoint']],
      [['tokens', 'add', 'grafana'], ['add_token']],
      [['tokens', 'remove', 'grafana', '--yes'], ['remove_token']],
      [['cursors', 'reset', 'reader', '--to', 'now', '--yes'], ['reset_cursor']],
      [['cursors', 'delete', 'reader', '--yes'], ['delete_cursor']],
      [['rollout', 'set', 'cli', '--percent', '5', '--yes'], ['rollout']],
      [['watch', 'public.orders', '--topic', 'order'], ['watch']],
      [['unwatch', 'public.orders'], ['unwatch']],
    ];
    const environment = { ...environmentOf(db), WAYBILL_SECRET_KEY: testKey };
    for (const [args, actions] of commands) {
      const before = await lastId();
      const { code, stderr } = await cli(args, { environment });
      expect(code, `${args.join(' ')}: ${stderr}`).toBe(0);
      expect(await recordsAfter(before), args.join(' ')).toMatchObject(
        actions.map((action) => ({ actor: me, action })),
      );
    }
    await makeDead(await makeQueue(db), 1, 'broken');
    const before = await lastId();
    await cliOn(db, ['dead-letters', 'discard', '--error-code', 'broken', '--yes']);
    expect(await recordsAfter(before)).toEqual([
      { actor: me, action: 'discard_dead_letters', count: 1 },
    ]);
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.jobs WHERE action = 'discard' ORDER BY started_at DESC LIMIT 1`,
    );
    const later = await lastId();
    await cliOn(db, ['dead-letters', 'restore', '--job', rows[0]?.id ?? '', '--yes']);
    expect(await recordsAfter(later)).toEqual([
      { actor: me, action: 'restore_dead_letters', count: 1 },
    ]);
  });

  it('W8 audit list shows the records page by page, by filters', async () => {
    const queue = await makeQueue(db);
    const other = await makeQueue(db);
    // times are shown with milliseconds
    const pause = (name: string, paused: boolean, actor: string) =>
      db.query(`SELECT ${db.quoted}.set_paused($1, $2, $3, 'noise'), pg_sleep(0.005)`, [
        name,
        paused,
        actor,
      ]);
    await pause(queue.name, true, 'ann');
    await pause(other.name, true, 'bob');
    await pause(queue.name, false, 'bob');
    const list = async (...args: string[]) =>
      json(await cliOn(db, ['audit', 'list', ...args, '--json'])) as {
        actions: { action: string; actor: string; at: string; subject: object }[];
        next: string | null;
      };
    const here = ['--destination', queue.name];
    const all = await list(...here);
    expect(all.actions.map(({ action, actor }) => `${actor} ${action}`)).toEqual([
      'bob resume',
      'ann pause',
      expect.stringContaining('define_destination'),
    ]);
    expect(all.next).toBe(null);
    const first = await list(...here, '--limit', '1');
    expect(first.actions).toEqual(all.actions.slice(0, 1));
    const second = await list(...here, '--limit', '1', '--next', first.next ?? '');
    expect(second.actions).toEqual(all.actions.slice(1, 2));
    expect((await list(...here, '--actor', 'ann')).actions).toEqual(all.actions.slice(1, 2));
    expect((await list(...here, '--action', 'resume')).actions).toEqual(all.actions.slice(0, 1));
    expect((await list(...here, '--until', all.actions[0]?.at ?? '')).actions).toHaveLength(2);
    expect(
      (await list(...here, '--since', new Date(Date.now() + 60_000).toISOString())).actions,
    ).toEqual([]);
    const table = await cliOn(db, ['audit', 'list', ...here]);
    expect(table.stdout).toContain('"reason":"noise"');
    expect(await cliOn(db, ['audit', 'list', '--next', 'x'])).toMatchObject({ code: 2 });
  });
});

describe('the API', () => {
  /** Each route that changes something, with its record. */
  const changes: { [route: string]: (ask: Ask) => Promise<string[]> } = {
    async '/api/messages/{id}/retry'(ask) {
      const queue = await makeQueue(db);
      const [id] = await makeRetrying(queue, 1);
      await ask('POST', `/api/messages/${id}/retry`, {});
      return ['retry_now'];
    },
    async '/api/messages/{id}/delete'(ask) {
      const queue = await makeQueue(db);
      await ask('POST', `/api/messages/${await queue.enqueueOne()}/delete`, {});
      const [dead] = await makeDead(queue, 1, 'broken');
      await ask('POST', `/api/messages/${dead}/delete`, {});
      return ['cancel', 'discard_dead_letters'];
    },
    async '/api/messages/{id}/restore'(ask) {
      const queue = await makeQueue(db);
      const [dead] = await makeDead(queue, 1, 'broken');
      await ask('POST', `/api/messages/${dead}/delete`, {});
      await ask('POST', `/api/messages/${dead}/restore`, {});
      return ['discard_dead_letters', 'restore_dead_letters'];
    },
    async '/api/dead-letters/jobs/{job}/undo'(ask) {
      const queue = await makeQueue(db);
      await makeDead(queue, 2, 'broken');
      const filter = { action: 'discard', destination: queue.name };
      const { body } = await ask('POST', '/api/dead-letters/plan', filter);
      const { deadBefore } = body;
      const job = await ask('POST', '/api/dead-letters/jobs', { ...filter, deadBefore });
      await untilJob(ask, job.body['id'], 'done');
      const undo = await ask('POST', `/api/dead-letters/jobs/${String(job.body['id'])}/undo`);
      await untilJob(ask, undo.body['id'], 'done');
      return ['discard_dead_letters', 'restore_dead_letters'];
    },
    async '/api/dead-letters/jobs'(ask) {
      const queue = await makeQueue(db);
      await makeDead(queue, 2, 'broken');
      const filter = { action: 'retry', destination: queue.name };
      const { body } = await ask('POST', '/api/dead-letters/plan', filter);
      const { deadBefore } = body;
      await ask('POST', '/api/dead-letters/jobs', { ...filter, deadBefore });
      await waitFor(async () => (await queue.deadLetters()).length === 0, { what: 'the job' });
      return ['retry_dead_letters'];
    },
    async '/api/dead-letters/jobs/{job}/resume'(ask) {
      const job = await startJob(db, (await makeQueue(db)).name, { heldMs: 1 });
      await waitFor(async () => (await stateOf(ask, job)) === 'interrupted', {
        what: 'the job to be interrupted',
      });
      await ask('POST', `/api/dead-letters/jobs/${job}/resume`);
      return ['resume_job'];
    },
    async '/api/dead-letters/jobs/{job}'(ask) {
      await ask(
        'DELETE',
        `/api/dead-letters/jobs/${await startJob(db, (await makeQueue(db)).name)}`,
      );
      return ['cancel_job'];
    },
    async '/api/messages/{id}/resend'(ask) {
      const queue = await makeQueue(db);
      const [dead = ''] = await makeDead(queue, 1, 'broken');
      await ask('POST', `/api/messages/${dead}/resend`, { destination: queue.name });
      return ['retry_dead_letters'];
    },
    async '/api/retrying/retry'(ask) {
      const queue = await makeQueue(db);
      await makeRetrying(queue, 2);
      await ask('POST', '/api/retrying/retry', { destination: queue.name });
      return ['retry_now'];
    },
    async '/api/keys/{messageId}/{action}'(ask) {
      for (const action of ['retry', 'skip', 'discard']) {
        const queue = await makeQueue(db, { whenDead: 'block' });
        const [head] = await makeBlocked(queue, action);
        await ask('POST', `/api/keys/${head}/${action}`, { destination: queue.name });
      }
      return ['retry_dead_letters', 'skip_dead_letters', 'discard_dead_letters'];
    },
    async '/api/destinations/{name}/pause'(ask) {
      const { name } = await makeQueue(db);
      await ask('POST', `/api/destinations/${name}/pause`, {});
      return ['pause'];
    },
    async '/api/destinations/{name}/resume'(ask) {
      const { name } = await makeQueue(db);
      await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'test')`, [name]);
      await ask('POST', `/api/destinations/${name}/resume`, {});
      return ['resume'];
    },
    async '/api/destinations/{name}/test'(ask) {
      const { name } = await makeQueue(db);
      await ask('POST', `/api/destinations/${name}/test`, {});
      return ['send_test'];
    },
    async '/api/replays'(ask) {
      const { name: destination } = await makeQueue(db);
      const until = '2020-01-01T00:00:00Z';
      const { body } = await ask('POST', '/api/replays', { destination, all: true, until });
      const state = async () =>
        (await ask('GET', `/api/replays/${String(body['id'])}`)).body['state'];
      await waitFor(async () => (await state()) === 'done', { what: 'the end of the replay' });
      return ['start_replay', 'replay'];
    },
    async '/api/replays/{replay}/resume'(ask) {
      const { replay_id: id } = await startReplay(db, (await makeQueue(db)).name);
      await ask('POST', `/api/replays/${id}/resume`, {});
      return ['resume_replay'];
    },
    async '/api/replays/{replay}'(ask) {
      const { replay_id: id } = await startReplay(db, (await makeQueue(db)).name);
      await ask('DELETE', `/api/replays/${id}`);
      return ['cancel_replay'];
    },
    async '/api/tenant-tokens'(ask) {
      await ask('POST', '/api/tenant-tokens', { tenantId: 'acme' });
      return ['add_tenant_token'];
    },
    async '/api/endpoints'(ask) {
      const endpoint = { url: 'https://example.com', topics: ['a.b'], tenantId: null };
      await ask('POST', '/api/endpoints', endpoint);
      return ['add_endpoint'];
    },
    async '/api/endpoints/{name}'(ask) {
      const { name } = await addEndpoint(db, { url: 'https://example.com' });
      await ask('PATCH', `/api/endpoints/${name}`, { description: 'x' });
      await ask('DELETE', `/api/endpoints/${name}`);
      return ['change_endpoint', 'remove_endpoint'];
    },
    ...Object.fromEntries(
      [
        ['rotate', ['rotate_endpoint']],
        ['disable', ['pause']],
        ['test', ['send_test']],
      ].map(([verb, actions]) => [
        `/api/endpoints/{name}/${String(verb)}`,
        async (ask: Ask) => {
          const { name } = await addEndpoint(db, { url: 'https://example.com' });
          await ask('POST', `/api/endpoints/${name}/${String(verb)}`);
          return actions as string[];
        },
      ]),
    ),
    async '/api/endpoints/{name}/retire'(ask) {
      const { name } = await addEndpoint(db, { url: 'https://example.com' });
      await endpointsOf(db).rotate(db.pool, { name });
      await ask('POST', `/api/endpoints/${name}/retire`);
      return ['retire_endpoint_secrets'];
    },
    async '/api/endpoints/{name}/enable'(ask) {
      const { name } = await addEndpoint(db, { url: 'https://example.com' });
      await endpointsOf(db).disable(db.pool, { name });
      await ask('POST', `/api/endpoints/${name}/enable`);
      return ['resume'];
    },
    async '/api/endpoints/{name}/recover'(ask) {
      const { name } = await addEndpoint(db, { url: 'https://example.com' });
      await endpointsOf(db).disable(db.pool, { name });
      await ask('POST', `/api/endpoints/${name}/recover`, { since: new Date().toISOString() });
      return ['resume'];
    },
    async '/api/endpoints/{name}/replay'(ask) {
      const { name } = await addEndpoint(db, { url: 'https://example.com' });
      const since = '2020-01-01T00:00:00Z';
      const until = '2020-01-02T00:00:00Z';
      await ask('POST', `/api/endpoints/${name}/replay`, { since, until });
      await waitFor(async () => (await recordsAfter('0')).at(-1)?.action === 'replay', {
        what: 'the end of the replay',
      });
      return ['start_replay', 'replay'];
    },
    async '/api/endpoints/{name}/messages/{id}/resend'(ask) {
      const { name } = await addEndpoint(db, { url: 'https://example.com', topics: ['resent'] });
      const id = await sendOne(db, { topic: 'resent' });
      await db.query(
        `UPDATE ${db.quoted}.deliveries SET tries = 1, available_at = clock_timestamp() + interval '1 hour' WHERE message_id = $1`,
        [id],
      );
      await ask('POST', `/api/endpoints/${name}/messages/${id}/resend`);
      return ['retry_now'];
    },
    async '/api/rollouts/{name}'(ask) {
      await defineRollout('api');
      await ask('POST', '/api/rollouts/api', { percent: 5 });
      return ['rollout'];
    },
  };

  it('W8 every route that changes something is tested here', () => {
    const routes = describedRoutes().filter(
      ({ method, scope }) => method !== 'GET' && scope !== 'read',
    );
    const unrecorded = [
      // the other system reports each message that it sent: this is traffic, which shadow_comparisons stores
      '/api/shadow',
      // a relay looks for work, which it would do later anyway
      '/api/wake',
    ];
    const paths = routes.map(({ path }) => path).filter((path) => !unrecorded.includes(path));
    expect([...new Set(paths)].toSorted()).toEqual(Object.keys(changes).toSorted());
  });

  it.each(Object.entries(changes))(
    'W8 %s records the token that was used',
    async (_path, change) => {
      setKey(testKey);
      const server = await serveDatabase(db);
      const token = await server.token('operate');
      const before = await lastId();
      const actions = await change(server.with({ authorization: `Bearer ${token}` }));
      const records = (await recordsAfter(before)).filter(({ actor }) => actor.startsWith('api:'));
      expect(records.map(({ action }) => action)).toEqual(actions);
      expect(new Set(records.map(({ actor }) => actor))).toEqual(
        new Set([expect.stringMatching(/^api:operate-/)]),
      );
    },
  );

  it('W8 /api/audit lists the records by filters', async () => {
    const queue = await makeQueue(db);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'ann')`, [queue.name]);
    const ask = await (await serveDatabase(db)).as('read');
    const list = async (query: string) =>
      (await ask('GET', `/api/audit?${query}`)).body['actions'] as { action: string }[];
    expect(await list(`destination=${queue.name}&actor=ann`)).toMatchObject([
      { action: 'pause', databaseUser: expect.any(String) as string },
    ]);
    expect(await list(`destination=${queue.name}&action=resume`)).toEqual([]);
    expect(await list(`destination=${queue.name}&to=2020-01-01T00:00:00Z`)).toEqual([]);
    expect(await list(`destination=${queue.name}&from=2020-01-01T00:00:00Z`)).toHaveLength(2);
  });

  it('W8 the filter by destination finds an action on letters of several destinations', async () => {
    const queues = [await makeQueue(db), await makeQueue(db)] as const;
    const destinations = queues.map(({ name }) => name);
    const ids = [...(await makeDead(queues[0], 1, 'no')), ...(await makeDead(queues[1], 1, 'no'))];
    const change = await (await serveDatabase(db)).as('operate');
    const wanted = { action: 'discard', ids, destinations };
    const plan = await change('POST', '/api/dead-letters/plan', wanted);
    const { deadBefore } = plan.body;
    const job = await change('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
    await untilJob(change, job.body['id'], 'done');
    const list = async (name: string) =>
      (await change('GET', `/api/audit?destination=${name}&action=discard_dead_letters`)).body[
        'actions'
      ];
    for (const name of destinations)
      expect(await list(name)).toMatchObject([{ subject: { destinations }, count: '2' }]);
    expect(await list((await makeQueue(db)).name)).toEqual([]);
  });

  it('W8 the filter by destination does not find an action without one, nor an undo', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 1, 'no');
    const ask = await (await serveDatabase(db)).as('operate');
    const wanted = { action: 'discard', topic: queue.topic };
    const plan = await ask('POST', '/api/dead-letters/plan', wanted);
    const { deadBefore } = plan.body;
    const job = await ask('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
    await untilJob(ask, job.body['id'], 'done');
    const undo = await ask('POST', `/api/dead-letters/jobs/${String(job.body['id'])}/undo`);
    await untilJob(ask, undo.body['id'], 'done');
    const list = async (query: string) =>
      (await ask('GET', `/api/audit?${query}`)).body['actions'] as { action: string }[];
    const [undone, discarded] = await list('limit=2');
    expect(undone).toMatchObject({ action: 'restore_dead_letters', count: '1' });
    expect(discarded).toMatchObject({ action: 'discard_dead_letters', count: '1' });
    const found = await list(`destination=${queue.name}`);
    expect(found.map(({ action }) => action)).toEqual(['define_destination']);
  });
});
