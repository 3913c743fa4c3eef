// Drains over HTTP, for cron: through the port of a running relay, and by a function that can be mounted anywhere.

import { expect, it } from 'vitest';

import { createDrainHandler, defineShards } from '../../src/index.js';
import { handler } from '../../src/destinations/handler.js';
import { retry } from '../../src/core/outcome.js';
import { testDatabase } from '../support/postgres.js';
import { send, startRelay, untilPlaces } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const token = 'a token of the tests that is long enough'.replaceAll(' ', '-');

function configOf(name: string) {
  return {
    database: { url: db.url, schema: db.schema },
    destinations: {
      [name]: handler(
        ({ topic }) => (topic === `${name}.bad` ? retry({ code: 'no' }) : undefined),
        {
          retry: { delaysMs: [3_600_000] },
        },
      ),
    },
    routes: [{ topic: `${name}.*`, to: name }],
  };
}

function ask(method: string, secret?: string): Request {
  return new Request('http://localhost/drain', {
    method,
    headers: secret === undefined ? {} : { authorization: `Bearer ${secret}` },
  });
}

it('C7 the mountable function delivers what is due, does the maintenance and reports both', async () => {
  const drain = createDrainHandler({ config: configOf('mounted'), token });
  // once, to define the routes
  expect((await drain(ask('POST', token))).status).toBe(200);
  const { rows } = await db.query<{ done: boolean }>(
    `SELECT done_at > '-infinity' AS done FROM ${db.quoted}.maintenance_runs WHERE task = 'retention'`,
  );
  expect(rows).toEqual([{ done: true }]);
  await send(db, [{ topic: 'mounted.good' }, { topic: 'mounted.good' }, { topic: 'mounted.bad' }]);
  const response = await drain(ask('POST', token));
  expect(await response.json()).toEqual({
    processed: 3,
    succeeded: 2,
    failed: 1,
    released: 0,
    finished: true,
    unrouted: 0,
    heldCursors: [],
  });
  await untilPlaces(db, 'mounted', { delivered: 2, waiting: 1, leased: 0 });
});

it('C7 it needs a POST and its token, and runs one at a time', async () => {
  const drain = createDrainHandler({ config: configOf('guarded'), token });
  expect((await drain(ask('GET', token))).status).toBe(405);
  expect((await drain(ask('POST'))).status).toBe(401);
  expect((await drain(ask('POST', `${token}x`))).status).toBe(401);
  const [first, second] = await Promise.all([drain(ask('POST', token)), drain(ask('POST', token))]);
  expect([first.status, second.status].toSorted((a, b) => a - b)).toEqual([200, 409]);
  expect((await drain(ask('POST', token))).status).toBe(200);
  expect(() => createDrainHandler({ config: configOf('guarded'), token: 'short' })).toThrow(
    'createDrainHandler.token has fewer than 16 characters',
  );
});

it('C7 an unavailable database is reported', async () => {
  const config = { ...configOf('away'), database: { url: 'postgresql://127.0.0.1:1/none' } };
  const response = await createDrainHandler({ config, token })(ask('POST', token));
  expect(response.status).toBe(503);
});

it('C7 N9 with several shards it reports the one that is away, and empties the others', async () => {
  const { database, ...config } = configOf('sharded');
  // once, to define the routes
  const alone = createDrainHandler({ config: { ...config, database }, token });
  expect((await alone(ask('POST', token))).status).toBe(200);
  await send(db, [{ topic: 'sharded.good' }]);
  const shards = defineShards({
    shards: { here: database, there: { url: 'postgresql://127.0.0.1:1/none' } },
  });
  const drain = createDrainHandler({ config: { ...config, shards }, token });
  const response = await drain(ask('POST', token));
  expect([response.status, await response.json()]).toMatchObject([
    503,
    { shards: { here: { succeeded: 1 }, there: { error: expect.any(String) as string } } },
  ]);
});

it('C7 the port of a running relay answers when nothing is due any more', async () => {
  const relay = await startRelay(db, configOf('served'));
  const server = await serveDatabase(db, { drain: () => relay.relay.catchUp({ maxMs: 20_000 }) });
  expect((await server.with({})('POST', '/drain')).status).toBe(401);
  expect((await (await server.as('read'))('POST', '/drain')).status).toBe(403);
  const drain = await server.as('operate');
  await send(db, [{ topic: 'served.good' }, { topic: 'served.bad' }, { topic: 'no.route' }]);
  const { status, body } = await drain('POST', '/drain');
  expect(status).toBe(200);
  expect(body).toMatchObject({ finished: true, unrouted: 1 });
  await db.query(`SELECT ${db.quoted}.discard_unrouted()`);
  // whether it was in flight when the drain began is random; that it is done is not
  await untilPlaces(db, 'served', { delivered: 1, waiting: 1, leased: 0 });
});
