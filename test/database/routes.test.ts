// Routes decide at enqueue which destinations get a message. The configuration owns the definitions; the database owns
// the run-time state, which applying a configuration never overwrites.

import { describe, expect, it } from 'vitest';

import { addRoute, defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue, misplaced, Queue } from '../support/outbox.js';
import type { MessageFields } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

/** The names of the destinations where a message is pending. */
async function goesTo(message: MessageFields): Promise<string[]> {
  const { id } = only(await enqueueMany(db, db.pool, [message]));
  const { rows } = await db.query<{ name: string }>(
    `SELECT t.name FROM ${db.quoted}.deliveries d JOIN ${db.quoted}.destinations t ON t.id = d.destination_id
      WHERE d.message_id = $1 ORDER BY t.name`,
    [id],
  );
  return rows.map((row) => row.name);
}

it('N12 a destination that is defined again keeps its id and uses no other', async () => {
  const id = await defineDestination(db, 'again');
  for (let maxAttempts = 2; maxAttempts < 12; maxAttempts += 1)
    expect(await defineDestination(db, 'again', { maxAttempts })).toBe(id);
  expect(await defineDestination(db, 'the-next')).toBe(id + 1);
});

describe('matching', () => {
  it('W1 a route matches a topic, a prefix or everything', async () => {
    const exact = await defineDestination(db, 'm-exact');
    const below = await defineDestination(db, 'm-below');
    await addRoute(db, exact, 'user.registered');
    await addRoute(db, below, 'user.*');
    expect(await goesTo({ topic: 'user.registered' })).toEqual(['m-below', 'm-exact']);
    expect(await goesTo({ topic: 'user.registered.twice' })).toEqual(['m-below']);
    expect(await goesTo({ topic: 'user.left' })).toEqual(['m-below']);
    expect(await goesTo({ topic: 'user' })).toEqual([]);
    expect(await goesTo({ topic: 'users.left' })).toEqual([]);
    expect(await goesTo({ topic: 'user_x' })).toEqual([]);

    const everything = await defineDestination(db, 'm-everything');
    await addRoute(db, everything, '*', { namespace: 'all' });
    expect(await goesTo({ topic: 'anything', namespace: 'all' })).toEqual(['m-everything']);
    expect(await goesTo({ topic: 'user.left', namespace: 'all' })).toEqual([
      'm-below',
      'm-everything',
    ]);
  });

  it('W1 pattern characters have no meaning in a route', async () => {
    const id = await defineDestination(db, 'l-literal');
    await addRoute(db, id, 'a_b.*');
    expect(await goesTo({ topic: 'a_b.c' })).toEqual(['l-literal']);
    expect(await goesTo({ topic: 'axb.c' })).toEqual([]);
  });

  it('M2 a route may select one namespace, one tenant, or both', async () => {
    const shop = await defineDestination(db, 'f-shop');
    const acme = await defineDestination(db, 'f-acme');
    const both = await defineDestination(db, 'f-both');
    await addRoute(db, shop, 'filtered', { namespace: 'shop' });
    await addRoute(db, acme, 'filtered', { tenantId: 'acme' });
    await addRoute(db, both, 'filtered', { namespace: 'shop', tenantId: 'acme' });
    expect(await goesTo({ topic: 'filtered' })).toEqual([]);
    expect(await goesTo({ topic: 'filtered', namespace: 'shop' })).toEqual(['f-shop']);
    expect(await goesTo({ topic: 'filtered', tenantId: 'acme' })).toEqual(['f-acme']);
    expect(await goesTo({ topic: 'filtered', tenantId: 'other' })).toEqual([]);
    expect(await goesTo({ topic: 'filtered', namespace: 'shop', tenantId: 'acme' })).toEqual([
      'f-acme',
      'f-both',
      'f-shop',
    ]);
  });

  it('W1 several routes to one destination make one delivery', async () => {
    const id = await defineDestination(db, 's-several');
    for (const topic of ['several.things', 'several.*']) await addRoute(db, id, topic);
    await addRoute(db, id, 'several.*', { namespace: 'default' });
    expect(await goesTo({ topic: 'several.things' })).toEqual(['s-several']);
  });

  it('P1 each destination of a fan-out has its own delivery and its own tries', async () => {
    const [one, two] = await Promise.all([makeQueue(db), makeQueue(db)]);
    await addRoute(db, two.id, one.topic);
    const id = await one.enqueueOne();
    const first = await one.claimOne();
    await settle(db, first, [{ id, outcome: 'retry', errorCode: 'busy' }]);
    expect(await one.status(id)).toMatchObject({ status: 'pending', retrying: true, tries: 1 });
    expect(await two.status(id)).toMatchObject({ status: 'pending', retrying: false, tries: 0 });
    await settle(db, await two.claimOne(), [{ id }]);
    expect(await two.status(id)).toMatchObject({ status: 'delivered', tries: 1 });
    expect(await one.status(id)).toMatchObject({ status: 'pending', tries: 1 });
  });

  it('W7 an unrouted message is kept and counted', async () => {
    const unrouted = async (): Promise<number> => {
      const { rows } = await db.query<{ value: string }>(
        `SELECT value FROM ${db.quoted}.health WHERE metric = 'unrouted'`,
      );
      return Number(only(rows).value);
    };
    const before = await unrouted();
    const { id } = only(await enqueueMany(db, db.pool, [{ topic: 'unwanted.topic', payload: 7 }]));
    expect(await unrouted()).toBe(before + 1);
    const { rows } = await db.query(
      `SELECT s.status, s.destination, m.payload FROM ${db.quoted}.message_status s
         JOIN ${db.quoted}.messages m ON m.id = s.message_id WHERE s.message_id = $1`,
      [id],
    );
    expect(rows).toEqual([{ status: 'unrouted', destination: null, payload: 7 }]);
  });
});

type Definition = { name: string; kind: string; maxAttempts: number } & Record<string, unknown>;

function definition(name: string, changes: Record<string, unknown> = {}): Definition {
  const retry = { retryBaseMs: 1000, retryMaxMs: 300_000, retryDelaysMs: null };
  return { name, kind: 'test', maxAttempts: 10, ...retry, ...changes };
}

async function sync(
  destinations: Definition[],
  routes: { topic: string; to: string }[],
): Promise<Map<string, Queue>> {
  await db.query(`SELECT ${db.quoted}.apply_definitions($1, p_prune => true)`, [
    JSON.stringify({ destinations, routes }),
  ]);
  const { rows } = await db.query<{ name: string; id: number }>(
    `SELECT name, id FROM ${db.quoted}.destinations WHERE name = ANY ($1)`,
    [destinations.map(({ name }) => name)],
  );
  return new Map(rows.map(({ name, id }) => [name, new Queue(db, name, id)]));
}

async function destination(name: string) {
  const { rows } = await db.query<{
    id: number;
    configured: boolean;
    paused_at: Date | null;
    max_attempts: number;
    changed_at: Date;
  }>(`SELECT * FROM ${db.quoted}.destinations WHERE name = $1`, [name]);
  return only(rows);
}

function queueOf(queues: Map<string, Queue>, name: string): Queue {
  return only([queues.get(name)].filter((queue) => queue !== undefined));
}

describe('definitions', () => {
  const route = { topic: 'sync.*', to: 'crm' };

  it('M2 a sync defines destinations and routes, and a repeat changes nothing', async () => {
    const first = await sync([definition('crm')], [route]);
    expect([...first.keys()]).toEqual(['crm']);
    expect(await goesTo({ topic: 'sync.this' })).toEqual(['crm']);
    const before = await destination('crm');
    await sync([definition('crm')], [route]);
    expect(await destination('crm')).toEqual(before);
  });

  it('M2 a sync replaces what changed, and never the pause', async () => {
    await sync([definition('crm')], [route]);
    await db.query(`SELECT ${db.quoted}.set_paused('crm', true)`);
    const { paused_at: pausedAt, id } = await destination('crm');
    expect(pausedAt).not.toBeNull();
    await sync([definition('crm', { maxAttempts: 3, kind: 'webhook' })], []);
    expect(await destination('crm')).toMatchObject({
      id,
      kind: 'webhook',
      max_attempts: 3,
      paused_at: pausedAt,
    });
    expect(await goesTo({ topic: 'sync.this' })).toEqual([]);
    await db.query(`SELECT ${db.quoted}.set_paused('crm', false)`);
  });

  it('W7 a destination that left the file keeps its pending deliveries visible', async () => {
    const queues = await sync([definition('leaving')], [{ topic: 'leaving', to: 'leaving' }]);
    const leaving = queueOf(queues, 'leaving');
    const id = await leaving.enqueueOne();
    await sync([], []);
    expect(await destination('leaving')).toMatchObject({ configured: false });
    expect(await leaving.status(id)).toMatchObject({ status: 'pending' });
    expect(await goesTo({ topic: 'leaving' })).toEqual([]);
    const back = await sync([definition('leaving')], [{ topic: 'leaving', to: 'leaving' }]);
    expect(queueOf(back, 'leaving').id).toBe(leaving.id);
    expect(await destination('leaving')).toMatchObject({ configured: true });
    expect((await leaving.claim()).ids).toEqual([id]);
  });

  it('M7 a delivery at a lowered maximum becomes a dead letter at once', async () => {
    const routes = [{ topic: 'lowered', to: 'lowered' }];
    const lowered = queueOf(await sync([definition('lowered')], routes), 'lowered');
    const [tried, fresh] = await lowered.enqueue(2);
    const claim = await lowered.claimOne();
    expect(claim.id).toBe(tried);
    await settle(db, claim, [{ id: claim.id, outcome: 'retry', errorCode: 'busy' }]);
    await sync([definition('lowered', { maxAttempts: 1 })], routes);
    expect((await lowered.waiting()).map((row) => row.message_id)).toEqual([fresh]);
    expect(await lowered.deadLetters()).toMatchObject([
      { message_id: tried, reason: 'exhausted', tries: 1, topic: 'lowered', payload: { n: 1 } },
    ]);
    expect(await misplaced(db)).toEqual([]);
  });
});
