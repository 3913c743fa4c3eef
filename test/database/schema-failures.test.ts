// If the schema is missing, outdated or not accessible to the login, producers and consumers get an error that says what
// to run, instead of a bare PostgreSQL code.

import { randomUUID } from 'node:crypto';

import { expect, it } from 'vitest';

import {
  createInbox,
  createOutbox,
  createRelay,
  handler,
  subscribe,
  WaybillError,
} from '../../src/index.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const message = { topic: 'user.registered' };

/** The errors of enqueue and the inbox, each in its own transaction. */
async function failures(schema: string, role?: string): Promise<unknown[]> {
  const inside = (
    work: (client: Parameters<Parameters<typeof db.inTransaction>[0]>[0]) => unknown,
  ) =>
    db
      .inTransaction(async (client) => {
        if (role !== undefined) await client.query(`SET LOCAL ROLE ${role}`);
        await work(client);
      })
      .catch((error: unknown) => error);
  return [
    await inside((client) => createOutbox({ schema }).enqueue(client, message)),
    await inside((client) => createOutbox({ schema, unrouted: 'refuse' }).enqueue(client, message)),
    await inside((client) =>
      createInbox({ schema }).process(client, { consumer: 'c', messageId: randomUUID() }, () => 1),
    ),
  ];
}

it('a missing schema: run migrate up', async () => {
  const words = /no schema nowhere: run npx waybill migrate up .*DATABASE_URL.*option schema/;
  for (const failure of await failures('nowhere')) {
    expect(failure).toBeInstanceOf(WaybillError);
    expect(failure).toMatchObject({
      code: 'schema_missing',
      message: expect.stringMatching(words) as string,
      cause: { code: '3F000' },
    });
  }
  const relay = createRelay({
    database: { url: db.url, schema: 'nowhere' },
    destinations: { here: handler(() => undefined) },
    routes: [],
  });
  await expect(relay.drain()).rejects.toMatchObject({ code: 'schema_missing' });
  const options = { name: 'reader', database: { url: db.url, schema: 'nowhere' } };
  await expect(subscribe(options, () => undefined)).rejects.toMatchObject({
    code: 'schema_missing',
    cause: { code: '3F000' },
  });
});

it('a schema that lacks a function or a table: run migrate up with this version', async () => {
  await db.query('CREATE SCHEMA older');
  for (const failure of await failures('older'))
    expect(failure).toMatchObject({
      code: 'schema_outdated',
      message: expect.stringMatching(
        /it lacks (enqueue_text|inbox_begin_many)\): run npx waybill migrate up/,
      ) as string,
      cause: { code: '42883' },
    });
});

it('a schema whose function lacks a table: run migrate up with this version', async () => {
  await db.query('CREATE SCHEMA half');
  await db.query(
    `CREATE FUNCTION half.enqueue_text(text, OUT answer text)
     LANGUAGE plpgsql AS 'BEGIN SELECT m.id INTO answer FROM half.messages m; END'`,
  );
  const [producer] = await failures('half');
  expect(producer).toMatchObject({ code: 'schema_outdated', cause: { code: '42P01' } });
});

it('a login without rights: which role to grant', async () => {
  const role = `stranger_${randomUUID().slice(0, 8)}`;
  await db.query(`CREATE ROLE ${role}`);
  try {
    const [producer, refusing, consumer] = await failures(db.schema, role);
    for (const failure of [producer, refusing])
      expect(failure).toMatchObject({
        code: 'rights_missing',
        message: expect.stringContaining('grant it the role producer, as in GRANT') as string,
        cause: { code: '42501' },
      });
    expect(consumer).toMatchObject({
      message: expect.stringContaining('grant it the role consumer') as string,
    });
  } finally {
    await db.query(`DROP ROLE ${role}`);
  }
});
