// Several relays on one database without another coordinator: they share the work, obey their filters, and report when
// their configurations differ.

import { describe, expect, it, onTestFinished, vi } from 'vitest';

import { Database } from '../../src/database/connection.js';
import { readDestinations, readRelays } from '../../src/listing/reports.js';
import { handler } from '../../src/destinations/handler.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { misplaced } from '../support/outbox.js';
import { letTimePassFor } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import {
  makeRelay,
  numbered,
  openDatabase,
  places,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

describe('sharing', () => {
  it('M11 C1 three relays deliver 5,000 messages, each exactly once without failures', async () => {
    const received: string[][] = [[], [], []];
    for (const mine of received) {
      await startRelay(db, {
        destinations: {
          shared: handler(async (message) => {
            await new Promise(setImmediate);
            mine.push(message.id);
          }),
        },
      });
    }
    const batches = await Promise.all(
      Array.from({ length: 10 }, () => send(db, numbered('shared', 500))),
    );
    await untilPlaces(db, 'shared', { waiting: 0, leased: 0, delivered: 5000, dead: 0 });
    const all = received.flat();
    expect(all).toHaveLength(5000);
    expect(new Set(all)).toEqual(new Set(batches.flat()));
    expect(received.filter((mine) => mine.length > 0).length).toBeGreaterThan(1);
    const { rows } = await db.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM ${db.quoted}.attempts WHERE state <> 'dispatched'`,
    );
    expect(rows, 'no second try').toEqual([{ count: 0 }]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('a relay is listed while it runs and removed when it stops', async () => {
    const database = openDatabase(db);
    const relay = await startRelay(db, {
      destinations: { shown: handler(() => undefined) },
      relay: { name: 'the shown one' },
    });
    expect(await readRelays(database)).toMatchObject([
      { name: 'the shown one', destinations: ['shown'] },
    ]);
    await relay.stop();
    expect(await readRelays(database)).toEqual([]);
    const { rows } = await db.query(`SELECT FROM ${db.quoted}.listeners`);
    expect(rows, 'and leaves no listener row behind').toEqual([]);
  });
});

describe('filters', () => {
  it('C10 a relay that is limited to tenants claims theirs and leaves the others', async () => {
    const received: string[] = [];
    const collect = (message: ClaimedMessage): void =>
      void received.push(message.tenantId ?? 'none');
    const limited = await startRelay(db, {
      destinations: { tenants: handler(collect) },
      relay: { tenantIds: ['a', 'b'], fallbackPollMs: 20 },
    });
    for (const tenantId of ['c', 'a', 'c', 'b', 'a'])
      await sendOne(db, { topic: 'tenants', tenantId });
    await sendOne(db, { topic: 'tenants' });
    await untilPlaces(db, 'tenants', { waiting: 3, leased: 0, delivered: 3 });
    expect(received.toSorted()).toEqual(['a', 'a', 'b']);
    await limited.stop();
    await startRelay(db, { destinations: { tenants: handler(collect) } });
    await untilPlaces(db, 'tenants', { waiting: 0, leased: 0, delivered: 6 });
    expect(received.slice(3).toSorted()).toEqual(['c', 'c', 'none']);
  });

  it('C10 a relay that is limited to a namespace claims only that', async () => {
    const received: string[] = [];
    await startRelay(db, {
      destinations: { spaces: handler((message) => void received.push(message.namespace)) },
      relay: { namespace: 'shop', fallbackPollMs: 20 },
    });
    for (const namespace of ['other', 'shop', 'shopping', 'shop'])
      await sendOne(db, { topic: 'spaces', namespace });
    await untilPlaces(db, 'spaces', { waiting: 2, leased: 0, delivered: 2 });
    expect(received).toEqual(['shop', 'shop']);
  });

  it('C10 P7 a limited relay is woken by notifications alone, and suppresses none', async () => {
    const received: string[] = [];
    const others: string[] = [];
    await startRelay(db, {
      destinations: { wings: handler((message) => void received.push(message.id)) },
      relay: { tenantIds: ['a'], fallbackPollMs: null },
    });
    await startRelay(db, {
      destinations: { wings: handler((message) => void others.push(message.id)) },
      relay: { tenantIds: ['b'], fallbackPollMs: null },
    });
    await send(db, numbered('wings', 300, { tenantId: 'a' }));
    for (let n = 1; n <= 5; n += 1) {
      await sendOne(db, { topic: 'wings', tenantId: 'b' });
      await untilCount(others, n, 'deliveries for b');
    }
    await untilCount(received, 300, 'deliveries for a');
    expect([received.length, others.length]).toEqual([300, 5]);
  });

  it('C10 C7 a drain that is limited to a tenant empties only that one', async () => {
    const drain = (tenantIds?: string[]) =>
      makeRelay(db, {
        destinations: { sharded: handler(() => undefined) },
        relay: tenantIds ? { tenantIds } : {},
      }).relay.drain({ maxMs: 20_000, maxMessages: 1000 });
    expect(await drain()).toMatchObject({ processed: 0, finished: true });
    await send(db, [
      ...numbered('sharded', 3, { tenantId: 'a' }),
      ...numbered('sharded', 2, { tenantId: 'b' }),
    ]);
    expect(await drain(['a'])).toEqual({
      processed: 3,
      succeeded: 3,
      failed: 0,
      released: 0,
      finished: true,
      unrouted: 0,
      heldCursors: [],
    });
    expect(await places(db, 'sharded')).toMatchObject({ waiting: 2, delivered: 3 });
  });
});

describe('drains', () => {
  it('C7 a drain takes a retry whose outcome was recorded while a claim found nothing', async () => {
    const definition = {
      destinations: {
        crossing: handler(
          (message) => {
            if (message.tries < 2) throw new Error('not yet');
          },
          { retry: { delaysMs: [0] } },
        ),
      },
    };
    await makeRelay(db, definition).relay.drain({ maxMs: 20_000, maxMessages: 10 });
    await send(db, numbered('crossing', 1));
    // oxlint-disable-next-line typescript/unbound-method -- it is called with the database as `this`
    const { queryTexts } = Database.prototype;
    const spy = vi.spyOn(Database.prototype, 'queryTexts').mockImplementation(async function (
      this: Database,
      ...parameters
    ) {
      const rows = await queryTexts.apply(this, parameters);
      // an empty answer of a claim is late: the outcome is recorded meanwhile
      if (parameters[0] === 'claim' && rows.length === 0)
        await new Promise((resolve) => setTimeout(resolve, 300));
      return rows;
    });
    onTestFinished(() => spy.mockRestore());
    const report = await makeRelay(db, definition).relay.drain({ maxMs: 20_000 });
    expect(report).toMatchObject({ processed: 2, succeeded: 1, failed: 1, finished: true });
  });

  it('C7 a drain ends with the queue empty, however many rounds its retries take', async () => {
    const definition = {
      destinations: {
        rounds: handler(
          (message) => {
            if (message.tries < 3) throw new Error('not yet');
          },
          { retry: { delaysMs: [0, 0] } },
        ),
      },
    };
    await makeRelay(db, definition).relay.drain({ maxMs: 20_000, maxMessages: 10 });
    await send(db, numbered('rounds', 4));
    const report = await makeRelay(db, definition).relay.drain({
      maxMs: 20_000,
      maxMessages: 1000,
    });
    expect(report).toEqual({
      processed: 12,
      succeeded: 4,
      failed: 8,
      released: 0,
      finished: true,
      unrouted: 0,
      heldCursors: [],
    });
    expect(await places(db, 'rounds')).toMatchObject({ waiting: 0, leased: 0, delivered: 4 });
  });

  it('C7 the message limit applies to each destination, and a drain that emptied all says so', async () => {
    const definition = {
      destinations: { east: handler(() => undefined), west: handler(() => undefined) },
    };
    await makeRelay(db, definition).relay.drain({ maxMs: 20_000, maxMessages: 10 });
    await send(db, [...numbered('east', 3), ...numbered('west', 3)]);
    const limits = { maxMs: 20_000, maxMessages: 4 };
    expect(await makeRelay(db, definition).relay.drain(limits)).toMatchObject({
      processed: 6,
      finished: true,
    });
    await send(db, [...numbered('east', 6), ...numbered('west', 1)]);
    expect(await makeRelay(db, definition).relay.drain(limits)).toMatchObject({
      processed: 5,
      finished: false,
    });
    expect(await places(db, 'east')).toMatchObject({ waiting: 2, leased: 0 });
  });

  it.each([
    ['without a key', {}],
    ['of one key', { key: 'k' }],
  ])(
    'C7 a drain whose limit is exactly what is pending has finished, %s',
    async (_what, message) => {
      const name = `exact-${Object.keys(message).length}`;
      const definition = { destinations: { [name]: handler(() => undefined) } };
      const drain = (maxMessages: number) =>
        makeRelay(db, definition).relay.drain({ maxMs: 20_000, maxMessages });
      await drain(1);
      await send(db, numbered(name, 5, message));
      expect(await drain(4)).toMatchObject({ processed: 4, released: 0, finished: false });
      expect(await drain(1)).toMatchObject({ processed: 1, finished: true });
    },
  );

  it('C7 a drain counts as finished although deliveries wait for a later try', async () => {
    const failing = handler(() => Promise.reject(new Error('not now')), {
      retry: { delaysMs: [3_600_000] },
    });
    const drain = () =>
      makeRelay(db, { destinations: { later: failing } }).relay.drain({
        maxMs: 20_000,
        maxMessages: 1,
      });
    await drain();
    await sendOne(db, { topic: 'later' });
    expect(await drain()).toMatchObject({ processed: 1, failed: 1, finished: true });
  });

  it('C7 M6 a drain delivers what a relay held that died, however short it is', async () => {
    const orphaned = handler(() => undefined, { retry: { delaysMs: [0] } });
    const drain = () => makeRelay(db, { destinations: { orphaned } }).relay.drain();
    await drain();
    await sendOne(db, { topic: 'orphaned' });
    const { rowCount } = await db.query(
      `SELECT FROM ${db.quoted}.claim('orphaned', gen_random_uuid(), lease => '1 second')`,
    );
    expect(rowCount).toBe(1);
    await waitFor(
      async () => {
        const { rows } = await db.query<{ expired: boolean }>(
          `SELECT bool_and(expires_at < clock_timestamp()) AS expired FROM ${db.quoted}.leases`,
        );
        return rows[0]?.expired;
      },
      { what: 'the end of the lease' },
    );
    expect(await drain()).toMatchObject({ processed: 1, succeeded: 1, finished: true });
  });

  it('C7 a drain that runs out of time releases what it holds and reports that it is not finished', async () => {
    const definition = (handle: () => Promise<void>) => ({
      destinations: { unhurried: handler(handle, { concurrency: 1 }) },
      relay: { stopDeadlineMs: 500 },
    });
    await makeRelay(
      db,
      definition(() => Promise.resolve()),
    ).relay.drain({
      maxMs: 20_000,
      maxMessages: 10,
    });
    await send(db, numbered('unhurried', 5));
    const report = await makeRelay(
      db,
      definition(() => new Promise(() => {})),
    ).relay.drain({
      maxMs: 200,
      maxMessages: 1000,
    });
    expect(report).toEqual({
      processed: 1,
      succeeded: 0,
      failed: 1,
      released: 4,
      finished: false,
      unrouted: 0,
      heldCursors: [],
    });
    expect(await places(db, 'unhurried')).toMatchObject({ waiting: 5, leased: 0 });
  });
});

describe('definitions', () => {
  it('the deliveries of a paused destination wait, use no tries, and continue when it is resumed', async () => {
    const received: string[] = [];
    const definition = {
      destinations: {
        halted: handler((message) => void received.push(message.topic)),
        going: handler((message) => void received.push(message.topic)),
      },
    };
    await startRelay(db, definition);
    await db.query(`SELECT ${db.quoted}.set_paused('halted', true)`);
    await send(db, numbered('halted', 2));
    await send(db, numbered('going', 2));
    await untilPlaces(db, 'going', { delivered: 2 });
    expect(received).toEqual(['going', 'going']);
    expect(await places(db, 'halted')).toMatchObject({ waiting: 2, leased: 0 });
    await db.query(`SELECT ${db.quoted}.set_paused('halted', false)`);
    await untilPlaces(db, 'halted', { delivered: 2, waiting: 0 });
    const { rows } = await db.query<{ claim_no: number }>(
      `SELECT DISTINCT a.claim_no FROM ${db.quoted}.attempts a JOIN ${db.quoted}.destinations t ON t.id = a.destination_id
        WHERE t.name = 'halted'`,
    );
    expect(rows).toEqual([{ claim_no: 1 }]);
  });

  it('relays with different configurations are reported to both', async () => {
    const first = await startRelay(db, {
      destinations: { agreed: handler(() => undefined) },
      relay: { name: 'old' },
    });
    const same = await startRelay(db, {
      destinations: { agreed: handler(() => undefined) },
      relay: { name: 'twin' },
    });
    expect([...first.of('other_configuration'), ...same.of('other_configuration')]).toEqual([]);
    const second = await startRelay(db, {
      destinations: { agreed: handler(() => undefined, { retry: { maxAttempts: 3 } }) },
      relay: { name: 'new' },
    });
    expect(second.of('other_configuration')).toEqual([
      { name: 'other_configuration', application: 'default', relays: ['old', 'twin'] },
    ]);
    // the others learn of it with their next heartbeat
    expect(await first.event('other_configuration')).toMatchObject({ relays: ['new'] });
  });

  it('the deliveries of a destination that left the configuration stay visible, and no new ones are made', async () => {
    const both = await startRelay(db, {
      destinations: { staying: handler(() => undefined), leaving: handler(() => undefined) },
      routes: [
        { topic: 'everything', to: 'staying' },
        { topic: 'everything', to: 'leaving' },
      ],
    });
    await both.stop();
    await sendOne(db, { topic: 'everything' });
    const { relay } = await startRelay(db, {
      destinations: { staying: handler(() => undefined) },
      routes: [{ topic: 'everything', to: 'staying' }],
    });
    await letTimePassFor(db, '11 minutes', [relay.id]);
    await relay.tendDefinitions();
    await sendOne(db, { topic: 'everything' });
    await untilPlaces(db, 'staying', { delivered: 2, waiting: 0, leased: 0 });
    expect(await places(db, 'leaving')).toMatchObject({ waiting: 1, leased: 0, delivered: 0 });
    const report = await readDestinations(openDatabase(db));
    expect(report.find(({ name }) => name === 'leaving')).toMatchObject({
      configured: false,
      waiting: 1,
    });
    expect(report.find(({ name }) => name === 'staying')).toMatchObject({ configured: true });
  });
});
