// Actions of operators on everything but messages: destinations, routes, tokens, endpoints, cursors, rollouts and
// watches.

import { randomBytes } from 'node:crypto';

import { expect } from 'vitest';

import { defineDestination } from '../../support/destinations.js';
import { makeQueue } from '../../support/outbox.js';
import { record } from './recorded.js';
import type { Actions, Records } from './recorded.js';

const sealedSecret = 'sealed:1:x';
const endpoint = (name: string) => [
  name,
  { url: 'https://example.com', topics: ['a.b'], sealedSecret, fingerprint: 'f', tenantId: 'acme' },
];

const policy = { maxAttempts: 3, retryBaseMs: 1, retryMaxMs: 2 };

export function actionsOnSettings({ db, call, recorded }: Records): Actions {
  /** Cursors of other tests want all messages, so none would be unrouted. */
  const unrouted = (topic: string) =>
    db.query(
      `INSERT INTO ${db.quoted}.unrouted_messages SELECT id FROM ${db.quoted}.enqueue($1) ON CONFLICT DO NOTHING`,
      [topic],
    );
  return {
    async set_paused() {
      const { name } = await makeQueue(db);
      const work = async () => {
        await call("set_paused($1, true, 'ann', 'noise')", [name]);
        await call("set_paused($1, true, 'ann', 'again')", [name]);
        await call("set_paused($1, false, 'ann')", [name]);
      };
      expect(await recorded(work), 'an action without a change is not recorded').toEqual([
        record('pause', 1, { destination: name, reason: 'noise' }),
        record('resume', 1, { destination: name }),
      ]);
    },
    async pause_after() {
      const { id, name } = await makeQueue(db);
      const relay = '00000000-0000-4000-8000-000000000001';
      const work = () =>
        call("pause_after($1::int, now(), $2, 'gone', '410', 'Gone')", [id, relay]);
      expect(await recorded(work)).toEqual([
        {
          ...record('pause', 1, {
            destination: name,
            code: 'gone',
            remoteCode: '410',
            reason: 'Gone',
          }),
          actor: `worker ${relay}`,
        },
      ]);
    },
    async add_token() {
      const work = () =>
        call("add_token('grafana', $1, 'operate', 'acme', p_actor => 'ann')", [randomBytes(32)]);
      const subject = { name: 'grafana', scope: 'operate', tenantId: 'acme' };
      expect(await recorded(work)).toEqual([record('add_token', 1, subject)]);
    },
    async add_tenant_token() {
      const work = () =>
        call("add_tenant_token('acme', $1, 'read', actor => 'ann')", [randomBytes(32)]);
      const name = expect.any(String) as string;
      const subject = { name, scope: 'read', tenantId: 'acme' };
      expect(await recorded(work)).toEqual([record('add_tenant_token', 1, subject)]);
    },
    async remove_token() {
      await call("add_token('old', $1)", [randomBytes(32)]);
      const work = async () => {
        await call("remove_token('old', 'ann')");
        await call("remove_token('old', 'ann')");
      };
      expect(await recorded(work)).toEqual([record('remove_token', 1, { name: 'old' })]);
    },
    async save_endpoint() {
      const work = async () => {
        await call("add_endpoint($1, $2, 'ann')", endpoint('customer'));
        await call(`change_endpoint('customer', '{"description": "x"}', actor => 'ann')`);
        await call(`rotate_endpoint('customer', '${sealedSecret}', 'g', actor => 'ann')`);
        await call("retire_endpoint_secrets('customer', actor => 'ann')");
        await call(
          `reseal_endpoint('customer', 4, '[{"sealed": "${sealedSecret}"}]', NULL, NULL, NULL, 'ann')`,
        );
      };
      const subject = { endpoint: 'customer', tenantId: 'acme' };
      expect(await recorded(work)).toEqual(
        [
          'add_endpoint',
          'change_endpoint',
          'rotate_endpoint',
          'retire_endpoint_secrets',
          'reseal_endpoint',
        ].map((action) => record(action, 1, subject)),
      );
    },
    async remove_endpoint() {
      await call('add_endpoint($1, $2)', endpoint('leaving'));
      const work = async () => {
        await call("set_endpoint_enabled('leaving', false, 'acme', 'ann', 'late')");
        await call("remove_endpoint('leaving', actor => 'ann')");
      };
      expect(await recorded(work)).toEqual([
        record('pause', 1, { destination: 'leaving', reason: 'late' }),
        record('remove_endpoint', 1, { endpoint: 'leaving', tenantId: 'acme' }),
      ]);
    },
    async reset_cursor() {
      await defineDestination(db, 'reader');
      await call("define_cursor('reader')");
      const work = () => call("reset_cursor('reader', 'beginning', 'ann')");
      expect(await recorded(work)).toEqual([
        record('reset_cursor', 1, { name: 'reader', from: 'beginning' }),
      ]);
    },
    async delete_cursor() {
      await defineDestination(db, 'gone');
      await call("define_cursor('gone')");
      expect(await recorded(() => call("delete_cursor('gone', 'ann')"))).toEqual([
        record('delete_cursor', 1, { name: 'gone' }),
      ]);
    },
    async close_cursor() {
      const client = await db.connect();
      await client.query("SET waybill.actor = 'ann'");
      const apply = (cursor: object | null) =>
        call(
          "apply_definitions($1, 'turning')",
          [
            JSON.stringify({
              destinations: [{ ...policy, name: 'turning', kind: 'x', cursor }],
              routes: [],
            }),
          ],
          client,
        );
      await apply({ from: 'now', filters: [{ topic: 'turn' }] });
      expect(await recorded(() => apply(null))).toEqual([
        record('close_cursor', 1, { name: 'turning' }),
      ]);
    },
    async repair_cursors() {
      expect(await recorded(() => call("repair_cursors(actor => 'ann')"))).toEqual([
        record('repair_cursors', 0, { cursors: 0 }),
      ]);
    },
    async define_destination() {
      const client = await db.connect();
      await client.query("SET waybill.actor = 'ann'");
      const records = await recorded(() =>
        call("define_destination('crm', p_max_attempts => 3)", [], client),
      );
      expect(records).toEqual([
        record(
          'define_destination',
          1,
          expect.objectContaining({ destination: 'crm', maxAttempts: 3 }) as object,
        ),
      ]);
    },
    async apply_definitions() {
      const client = await db.connect();
      await client.query("SET waybill.actor = 'ann'");
      const file = { ...policy, name: 'filed', kind: 'x' };
      const sync = (destinations: object[], routes: object[]) =>
        recorded(() =>
          call(
            'apply_definitions($1, p_prune => true)',
            [JSON.stringify({ destinations, routes })],
            client,
          ),
        );
      const route = { topic: 'a.b', to: 'filed' };
      const first = await sync([file], [route]);
      expect(first.map(({ action }) => String(action))).toEqual([
        'define_destination',
        'change_routes',
        'leave_destinations',
      ]);
      expect(first[1]).toMatchObject({ actor: 'ann', subject: { added: [route] } });
      expect(await sync([file], [route]), 'an identical file').toEqual([]);
      const governed = { ...route, rollout: 'step' };
      const shadow = { ...file, name: 'step.shadow' };
      expect(await sync([file, shadow], [governed]), 'a rollout changes its route').toEqual([
        record(
          'define_destination',
          1,
          expect.objectContaining({ destination: 'step.shadow' }) as object,
        ),
        record('change_routes', 1, { owner: 'default', added: [governed] }),
      ]);
      expect(await sync([file, shadow], [governed]), 'an identical file afterwards').toEqual([]);
      await call("set_rollout('step', 0)");
      expect(await sync([], [])).toEqual([
        record('change_routes', 1, { owner: 'default', removed: [governed] }),
        record('leave_destinations', 2, { destinations: ['filed', 'step.shadow'] }),
      ]);
    },
    async remove_destination() {
      const client = await db.connect();
      await client.query("SET waybill.actor = 'ann'");
      await call("define_destination('worker')");
      await call("define_route('work', 'worker')");
      expect(await recorded(() => call("remove_destination('worker')", [], client))).toEqual([
        record('change_routes', 1, { owner: 'sql', removed: [{ topic: 'work', to: 'worker' }] }),
        record('remove_destination', 1, { destination: 'worker' }),
        record('leave_destinations', 1, { destinations: ['worker'] }),
      ]);
    },
    async remove_application() {
      const client = await db.connect();
      await client.query("SET waybill.actor = 'ann'");
      await call(`apply_definitions('{"destinations": [], "routes": []}', 'gone')`);
      expect(await recorded(() => call("remove_application('gone')", [], client))).toEqual([
        record('remove_application', 1, { application: 'gone' }),
      ]);
    },
    async route_first() {
      const client = await db.connect();
      await client.query("SET waybill.actor = 'ann'");
      await unrouted('early');
      const definitions = JSON.stringify({
        destinations: [{ ...policy, name: 'first', kind: 'x' }],
        routes: [{ topic: 'early', to: 'first' }],
      });
      const records = await recorded(() =>
        call("apply_definitions($1, 'new')", [definitions], client),
      );
      expect(records).toContainEqual(record('route_unrouted', 1, { owner: 'new' }));
    },
    async route_earlier() {
      const client = await db.connect();
      await client.query("SET waybill.actor = 'ann'");
      await unrouted('earlier');
      const definitions = JSON.stringify({
        destinations: [{ ...policy, name: 'second', kind: 'x' }],
        routes: [{ topic: 'earlier', to: 'second' }],
      });
      const records = await recorded(() =>
        call("route_earlier($1, 'newer')", [definitions], client),
      );
      expect(records).toContainEqual(record('route_unrouted', 1, { owner: 'newer' }));
    },
    async set_rollout() {
      const file = { ...policy, kind: 'x' };
      const definitions = {
        destinations: ['billing', 'handover.shadow'].map((name) => ({ ...file, name })),
        routes: [{ topic: 'bill.due', to: 'billing', rollout: 'handover' }],
      };
      await call('apply_definitions($1, p_prune => true)', [JSON.stringify(definitions)]);
      const work = async () => {
        await call("set_rollout('handover', 5, actor => 'ann')");
        await call("set_rollout('handover', 5, actor => 'ann')");
      };
      const subject = {
        rollout: 'handover',
        percent: 5,
        shadow: false,
        percentBefore: 0,
        shadowBefore: false,
      };
      expect(await recorded(work), 'an action without a change is not recorded').toEqual([
        record('rollout', 1, subject),
      ]);
    },
    async define_watch() {
      await db.query('CREATE TABLE public.watched (id int PRIMARY KEY)');
      const work = () => call("watch('public.watched', 'thing')");
      expect(await recorded(work)).toMatchObject([
        { action: 'watch', subject: { table: 'public.watched', topic: 'thing' } },
      ]);
      expect(await recorded(work), 'nothing to do').toEqual([]);
    },
    async end_watch() {
      await db.query('CREATE TABLE public.seen (id int PRIMARY KEY)');
      await call("watch('public.seen', 'thing')");
      expect(await recorded(() => call("unwatch('public.seen')"))).toMatchObject([
        { action: 'unwatch', subject: { table: 'public.seen', topic: 'thing' } },
      ]);
    },
  };
}
