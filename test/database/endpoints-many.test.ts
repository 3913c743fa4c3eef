// Thousands of endpoints: they are served in few statements, one that cannot be claimed fails no other, and those without
// work have no pipeline and no listener row, but get their messages by notification and by the fallback poll.

import { randomUUID } from 'node:crypto';

import { describe, expect, it, onTestFinished, vi } from 'vitest';

import { Database } from '../../src/database/connection.js';
import { parseSecretKeys } from '../../src/core/sealed-secret.js';
import { sealSecret } from '../../src/features/endpoints/secrets.js';
import { Pipelines } from '../../src/relay/delivery/pipelines.js';
import {
  addEndpoint,
  endpointSettings,
  endpointsOf,
  startEndpointRelay,
  startReceiver,
  testKey,
} from '../support/endpoints.js';
import type { Receiver } from '../support/endpoints.js';
import { destinationId } from '../support/listeners.js';
import { misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { send, sendOne, untilEnded, waitLimitMs } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const endpoints = endpointsOf(db);

/** Adds endpoints with one statement; endpoint n gets the topic `GROUP.n` at the path `/n`. */
async function addMany(group: string, count: number, url: string): Promise<void> {
  const keys = parseSecretKeys(testKey) ?? [];
  const secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`;
  const added = Array.from({ length: count }, (_, n) => {
    const name = `${group}-${n}`;
    const fields = { url: `${url}/${n}`, topics: [`${group}.${n}`], tenantId: `${group} ${n}` };
    return { name, endpoint: { ...fields, ...sealSecret(keys, name, secret) } };
  });
  await db.query(
    `SELECT count(${db.quoted}.add_endpoint(x.name, x.endpoint))
       FROM jsonb_to_recordset($1::jsonb) AS x(name text, endpoint jsonb)`,
    [JSON.stringify(added)],
  );
}

function messagesOf(group: string, count: number) {
  return Array.from({ length: count }, (_, n) => ({
    topic: `${group}.${n}`,
    tenantId: `${group} ${n}`,
  }));
}

async function untilReceived(receiver: Receiver, count: number): Promise<void> {
  await waitFor(() => receiver.requests.length >= count, {
    what: `${count} requests (so far ${receiver.requests.length})`,
    timeoutMs: 60_000,
  });
}

function countStatements(): (what: string) => number {
  const spies = [vi.spyOn(Database.prototype, 'queryTexts'), vi.spyOn(Database.prototype, 'query')];
  onTestFinished(() => {
    for (const spy of spies) spy.mockRestore();
  });
  return (what) => spies.flatMap((spy) => spy.mock.calls).filter(([of]) => of === what).length;
}

/** The statements of the relay so far, each with the time of its start. */
function timeStatements(): () => { what: string; startedMs: number }[] {
  const started: { what: string; startedMs: number }[] = [];
  // oxlint-disable-next-line typescript/unbound-method -- it is called with the database as `this`
  const { queryTexts, query } = Database.prototype;
  const spies = [
    vi.spyOn(Database.prototype, 'queryTexts').mockImplementation(function (
      this: Database,
      ...parameters
    ) {
      started.push({ what: parameters[0], startedMs: performance.now() });
      return queryTexts.apply(this, parameters);
    }),
    vi.spyOn(Database.prototype, 'query').mockImplementation(function (
      this: Database,
      ...parameters
    ) {
      started.push({ what: parameters[0], startedMs: performance.now() });
      return query.apply(this, parameters);
    }),
  ];
  onTestFinished(() => {
    for (const spy of spies) spy.mockRestore();
  });
  return () => started;
}

async function listenerRows(): Promise<number[]> {
  const { rows } = await db.query<{ destination_id: number }>(
    `SELECT destination_id FROM ${db.quoted}.listeners ORDER BY destination_id`,
  );
  return rows.map((row) => row.destination_id);
}

describe('two thousand endpoints', () => {
  it('are served in few statements, with a bounded number of pipelines', async () => {
    const receiver = await startReceiver();
    await addMany('crowd', 2000, receiver.url);
    const ids = await send(db, messagesOf('crowd', 2000));
    const count = countStatements();
    const opened = vi.spyOn(Pipelines.prototype, 'openEndpoint');
    const closed = vi.spyOn(Pipelines.prototype, 'close');
    onTestFinished(() => {
      opened.mockRestore();
      closed.mockRestore();
    });
    const relay = await startEndpointRelay(db, { relay: { concurrency: 100 } });
    await untilReceived(receiver, 2000);
    const paths = new Map(receiver.requests.map(({ id, path }) => [id, path]));
    expect(ids.map((id) => paths.get(id))).toEqual(ids.map((_, n) => `/${n}`));
    expect(receiver.requests).toHaveLength(2000);
    // each endpoint claims once; the due poller looks for more, for many of them with one query
    expect(count('read endpoints')).toBeLessThan(400);
    expect(count('claim')).toBeLessThan(1000);
    expect(count('settle')).toBeLessThan(1000);
    // the due poller may find a few again that were delivered meanwhile
    expect(opened.mock.calls.length).toBeGreaterThanOrEqual(2000);
    expect(opened.mock.calls.length).toBeLessThan(3000);
    // at most 100 at once, and the last ones stay open for a moment
    const mostClosed = () => closed.mock.calls.length >= 1900;
    await waitFor(mostClosed, { what: 'the end of most pipelines' });
    expect(await listenerRows()).toEqual([0]);
    expect(relay.events.filter(({ name }) => name === 'trouble')).toEqual([]);
    await relay.stop();
    expect(await misplaced(db)).toEqual([]);
  });
});

describe('an endpoint whose first call fails', () => {
  it('rests, and nothing more is claimed for it meanwhile', async () => {
    const receiver = await startReceiver();
    receiver.status = 500;
    await addEndpoint(db, { url: receiver.url, topics: ['failing.*'] });
    await send(
      db,
      Array.from({ length: 3 }, (_, n) => ({ topic: `failing.${n}` })),
    );
    const statements = timeStatements();
    await startEndpointRelay(db);
    await untilReceived(receiver, 1);
    // the rest lasts two seconds; after it, the relay may claim again before the second call has failed
    const restMs = performance.now() + 1500;
    await untilReceived(receiver, 2);
    const during = statements().filter(({ startedMs }) => startedMs < restMs);
    // the retry of the first message was recorded during the rest, and did not lead to a claim
    const recorded = during.findIndex(({ what }) => what === 'settle');
    expect(recorded).toBeGreaterThan(0);
    expect(during.slice(recorded).map(({ what }) => what)).not.toContain('claim');
  });
});

describe('a shared claim', () => {
  it('that fails for one endpoint fails for no other', async () => {
    const receiver = await startReceiver();
    await addMany('mixed', 30, receiver.url);
    const broken = await destinationId(db, 'mixed-7');
    await db.query(`
      CREATE FUNCTION ${db.quoted}.refuse_lease() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''no lease for it''; END';
      CREATE TRIGGER refuse BEFORE INSERT ON ${db.quoted}.leases FOR EACH ROW
        WHEN (NEW.destination_id = ${broken}) EXECUTE FUNCTION ${db.quoted}.refuse_lease()`);
    onTestFinished(async () => {
      await db.query(`DROP FUNCTION ${db.quoted}.refuse_lease() CASCADE`);
    });
    await send(db, messagesOf('mixed', 30));
    const relay = await startEndpointRelay(db);
    await untilReceived(receiver, 29);
    await relay.event('trouble', ({ what }) => what === 'claim for mixed-7');
    expect(receiver.requests.map(({ path }) => path)).not.toContain('/7');
    await relay.stop();
  });

  it('keeps the order of each key at each endpoint', async () => {
    const receiver = await startReceiver();
    await addMany('ordered', 20, receiver.url);
    const rounds = Array.from({ length: 8 }, () =>
      messagesOf('ordered', 20).map((message, n) => ({ ...message, key: `key ${n}` })),
    );
    const sent: string[][] = [];
    for (const round of rounds) sent.push(await send(db, round));
    await startEndpointRelay(db);
    await untilReceived(receiver, 160);
    for (let n = 0; n < 20; n += 1) {
      const arrived = receiver.requests.filter(({ path }) => path === `/${n}`);
      expect(arrived.map(({ id }) => id)).toEqual(sent.map((ids) => ids[n]));
    }
  });

  it('takes nothing from an endpoint that is disabled', async () => {
    const receiver = await startReceiver();
    await addMany('partly', 10, receiver.url);
    await send(db, messagesOf('partly', 10));
    await endpoints.disable(db.pool, { name: 'partly-3' });
    await startEndpointRelay(db);
    await untilReceived(receiver, 9);
    expect(receiver.requests.map(({ path }) => path)).not.toContain('/3');
    await endpoints.enable(db.pool, { name: 'partly-3' });
    await untilReceived(receiver, 10);
  });
});

describe('an endpoint without work', () => {
  it('has no pipeline, and gets its message by notification', async () => {
    const receiver = await startReceiver();
    const { name } = await addEndpoint(db, { url: receiver.url, topics: ['quiet.heard'] });
    const opened = vi.spyOn(Pipelines.prototype, 'openEndpoint');
    onTestFinished(() => opened.mockRestore());
    const relay = await startEndpointRelay(db, { relay: { fallbackPollMs: null } });
    await waitFor(async () => (await listenerRows()).includes(0), { what: 'the listener' });
    // endpoints of earlier tests may still have retries
    const openedNames = () => opened.mock.calls.map(([endpoint]) => endpoint.name);
    expect(openedNames()).not.toContain(name);
    const id = await sendOne(db, { topic: 'quiet.heard' });
    await receiver.has(id);
    expect(openedNames()).toContain(name);
    expect(await listenerRows()).toEqual([0]);
    await relay.stop();
    expect(await listenerRows()).toEqual([]);
  });

  it('gets its message by the fallback poll if no notification is sent', async () => {
    const receiver = await startReceiver();
    await addEndpoint(db, { url: receiver.url, topics: ['quiet.polled'] });
    await startEndpointRelay(db, { relay: { listen: false } });
    await receiver.has(await sendOne(db, { topic: 'quiet.polled' }));
  });

  it('gets a delayed message when it is due, even without a fallback poll', async () => {
    const receiver = await startReceiver();
    await addEndpoint(db, { url: receiver.url, topics: ['quiet.later'] });
    const availableAt = new Date(Date.now() + 1500);
    const id = await sendOne(db, { topic: 'quiet.later', availableAt });
    await startEndpointRelay(db, { relay: { fallbackPollMs: null } });
    await receiver.has(id);
    expect(Date.now()).toBeGreaterThanOrEqual(availableAt.getTime());
  });
});

/** Intercepts the next reading of endpoints, after its answer has come. */
function interceptReading(then: () => Promise<void>): void {
  // oxlint-disable-next-line typescript/unbound-method -- it is called with the database as `this`
  const { query } = Database.prototype;
  let isDone = false;
  const spy = vi.spyOn(Database.prototype, 'query').mockImplementation(async function (
    this: Database,
    ...parameters
  ) {
    const rows = await query.apply(this, parameters);
    if (parameters[0] === 'read endpoints' && !isDone) {
      isDone = true;
      await then();
    }
    return rows;
  });
  onTestFinished(() => spy.mockRestore());
}

describe('an endpoint that is being opened', () => {
  it('has the address to which it is changed meanwhile', async () => {
    const [before, after] = [await startReceiver(), await startReceiver()];
    const { name } = await addEndpoint(db, { url: before.url, topics: ['racing'] });
    const relay = await startEndpointRelay(db);
    interceptReading(async () => {
      await endpoints.change(db.pool, { name }, { url: after.url });
      await relay.event('endpoints_changed', ({ changed }) => changed === 1);
    });
    await sendOne(db, { topic: 'racing' });
    await untilEnded(db, name);
    await after.has(await sendOne(db, { topic: 'racing' }));
  });

  it('is opened after an error, even without a fallback poll', async () => {
    const receiver = await startReceiver();
    await addEndpoint(db, { url: receiver.url, topics: ['unread'] });
    const relay = await startEndpointRelay(db, { relay: { fallbackPollMs: null } });
    await waitFor(async () => (await listenerRows()).includes(0), { what: 'the listener' });
    interceptReading(() => Promise.reject(new Error('the connection broke')));
    const id = await sendOne(db, { topic: 'unread' });
    await relay.event('trouble', ({ what }) => what === 'open endpoints');
    await receiver.has(id);
  });
});

describe('the notification for an endpoint', () => {
  it('is sent while a relay listens for all endpoints, unless one polls this endpoint', async () => {
    const { name } = await addEndpoint(db, { url: 'https://example.com', topics: ['told'] });
    const id = await destinationId(db, name);
    const listener = await db.connect();
    onTestFinished(() => listener.end());
    const heard: string[] = [];
    listener.on('notification', ({ payload = '' }) => heard.push(payload));
    const { rows } = await db.query<{ channel: string }>(
      `SELECT ${db.quoted}.notification_channel() AS channel`,
    );
    await listener.query(`LISTEN ${listener.escapeIdentifier(rows[0]?.channel ?? '')}`);
    const afterOne = async (): Promise<string[]> => {
      await sendOne(db, { topic: 'told' });
      await listener.query('SELECT 1');
      return heard.splice(0);
    };
    const register = (ids: number[], activeMs: number, listeningMs: number) =>
      db.query(`SELECT ${db.quoted}.register_listener($1, $2, $3, $4)`, [
        relayId,
        ids,
        activeMs,
        listeningMs,
      ]);
    const relayId = randomUUID();
    expect(await afterOne()).toEqual([]);
    await register([0], 0, 60_000);
    expect(await afterOne()).toEqual([String(id)]);
    await register([id], 60_000, 0);
    expect(await afterOne()).toEqual([]);
    await register([id], 0, 0);
    expect(await afterOne()).toEqual([String(id)]);
    await db.query(`SELECT ${db.quoted}.sign_off($1)`, [relayId]);
    expect(await afterOne()).toEqual([]);
  });
});

it('destination ids above 32,767 are served, and a removed endpoint leaves no listener', async () => {
  await db.query(`SELECT setval(pg_get_serial_sequence('${db.quoted}.destinations', 'id'), 70000)`);
  const receiver = await startReceiver();
  const { name } = await addEndpoint(db, { url: receiver.url, topics: ['far'] });
  const relay = await startEndpointRelay(db, { endpoints: endpointSettings });
  await receiver.has(await sendOne(db, { topic: 'far' }));
  expect(await destinationId(db, name)).toBeGreaterThan(70_000);
  await untilEnded(db, name);
  await endpoints.remove(db.pool, { name });
  await relay.event('endpoints_changed', ({ closed }) => closed === 1);
  await waitFor(async () => (await listenerRows()).every((id) => id === 0), {
    what: 'no listener of its own',
    timeoutMs: waitLimitMs,
  });
});
