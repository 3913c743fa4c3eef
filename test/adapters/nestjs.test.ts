// waybill/nestjs in real NestJS applications: injected objects work, and a relay lives as long as its application.

import { randomUUID } from 'node:crypto';
import path from 'node:path';

import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';

import { ConfigurationError, defineEvents, defineShards, handler } from '../../src/index.js';
import { MessageRefusedError, migrateUp } from '../../src/index.js';
import type { Config, EventMessage, RelayEvent } from '../../src/index.js';
import { Inbox, Outbox, WaybillModule } from '../../src/nestjs.js';
import { runNode } from '../support/cli.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { librariesMissing } from './installed.js';
import { nameAndVersion } from './library.js';

const db = testDatabase();
const missing = librariesMissing();
const title = missing === null ? nameAndVersion('@nestjs/core') : '@nestjs/core';

function relayOf(name: string, work: () => unknown): Config {
  return {
    database: { url: db.url, schema: db.schema },
    destinations: { [name]: handler(async () => void (await work())) },
    routes: [{ topic: name, to: name }],
  };
}

async function livingRelays(): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.relays`,
  );
  return only(rows).count;
}

describe.skipIf(missing !== null)(`${title}, in an application`, () => {
  /** An application of these modules, closed when the test ends. */
  async function start(...imports: object[]) {
    const { Module } = await import('@nestjs/common');
    const { NestFactory } = await import('@nestjs/core');
    class Application {}
    Module({ imports: imports as never[] })(Application);
    const app = await NestFactory.createApplicationContext(Application, {
      logger: false,
      abortOnError: false,
    });
    let closed: Promise<void> | undefined;
    const close = () => (closed ??= app.close());
    onTestFinished(close);
    return { app, close };
  }

  test('M1 M11 an injected outbox and inbox work in the transaction of the application', async () => {
    const { app } = await start(WaybillModule.forRoot({ schema: db.schema }));
    const topic = `nest-${randomUUID()}`;
    const { id } = await db.inTransaction((client) =>
      app.get(Outbox).enqueue(client, { topic, payload: { a: 1 } }),
    );
    const { rows } = await db.query(`SELECT id FROM ${db.quoted}.messages WHERE topic = $1`, [
      topic,
    ]);
    expect(rows).toEqual([{ id }]);
    await expect(app.get(Outbox).enqueue(db.pool, { topic })).rejects.toThrow(/pool/);
    const received = { consumer: topic, messageId: id };
    const process = () =>
      db.inTransaction((client) => app.get(Inbox).process(client, received, () => 'done'));
    expect(await process()).toMatchObject({ processed: true, value: 'done' });
    expect(await process()).toMatchObject({ processed: false });
    expect(await livingRelays()).toBe(0);
  });

  test('M12 a relay starts when the application is ready, and stops before the modules that its handlers use', async () => {
    const { Module } = await import('@nestjs/common');
    const order: string[] = [];
    let begun: () => void = () => undefined;
    const started = new Promise<void>((resolve) => (begun = resolve));
    let finish: () => void = () => undefined;
    const allowed = new Promise<void>((resolve) => (finish = resolve));
    // a global module that a handler uses, such as one for a database
    class Used {
      onModuleInit = () => order.push('used is ready');
      onModuleDestroy = () => order.push('used is gone');
    }
    class UsedModule {}
    Module({})(UsedModule);
    const relay = relayOf('nest-order', async () => {
      order.push('handling');
      begun();
      await allowed;
      order.push('handled');
    });
    const { app, close } = await start(
      WaybillModule.forRootAsync({
        useFactory: () => ({
          relay,
          onEvent: ({ name }: RelayEvent) => {
            if (name === 'relay_started' || name === 'relay_stopped') order.push(name);
          },
        }),
      }),
      { module: UsedModule, global: true, providers: [{ provide: Used, useValue: new Used() }] },
    );
    expect(await livingRelays()).toBe(1);
    await db.inTransaction((client) => app.get(Outbox).enqueue(client, { topic: 'nest-order' }));
    await started;
    const closed = close();
    finish();
    await closed;
    expect(await livingRelays()).toBe(0);
    expect(order).toEqual([
      'used is ready',
      'relay_started',
      'handling',
      'handled',
      'relay_stopped',
      'used is gone',
    ]);
    const { rows } = await db.query(
      `SELECT status FROM ${db.quoted}.message_status WHERE topic = 'nest-order'`,
    );
    expect(rows).toEqual([{ status: 'delivered' }]);
  });

  test('the outbox and the inbox use the schema of the relay', async () => {
    const schema = 'beside nest';
    await migrateUp({ url: db.url, schema });
    const { database, ...rest } = relayOf('nest-schema', () => undefined);
    const relay = { ...rest, database: { ...database, schema } };
    const { app } = await start(WaybillModule.forRoot({ relay }));
    await db.inTransaction(async (client) => {
      const { id } = await app.get(Outbox).enqueue(client, { topic: 'nest-schema' });
      await app.get(Inbox).process(client, { consumer: 'c', messageId: id }, () => undefined);
      const { rows } = await client.query(`SELECT FROM "${schema}".messages, "${schema}".inbox`);
      expect(rows).toHaveLength(1);
    });
  });

  test('the outbox accepts typed events, at compile time and at run time', async () => {
    const events = defineEvents({ 'nest.typed': z.object({ userId: z.number() }) });
    const { app } = await start(WaybillModule.forRoot({ schema: db.schema, events }));
    const outbox = app.get<Outbox<EventMessage<typeof events>>>(Outbox);
    const enqueue = (payload: { userId: number }) =>
      db.inTransaction((client) => outbox.enqueue(client, { topic: 'nest.typed', payload }));
    expect(await enqueue({ userId: 7 })).toMatchObject({ duplicate: false });
    // @ts-expect-error the compiler knows the payload
    const refused = enqueue({ userId: 'seven' });
    await expect(refused).rejects.toThrow(/^payload\.userId of "nest\.typed" is refused/);
  });

  test('the outbox refuses tenants of other shards', async () => {
    const of = defineShards({
      shards: { a: { url: db.url }, b: { url: 'postgresql://localhost/elsewhere' } },
      tenants: { acme: 'a', zenith: 'b' },
    });
    const shard = { of, name: 'a' };
    const { app } = await start(WaybillModule.forRoot({ schema: db.schema, shard }));
    const enqueue = (tenantId: string) =>
      db.inTransaction((client) => app.get(Outbox).enqueue(client, { topic: 'nest', tenantId }));
    await enqueue('acme');
    await expect(enqueue('zenith')).rejects.toThrow(MessageRefusedError);
  });

  test('options may come from other providers', async () => {
    const { Module } = await import('@nestjs/common');
    class Settings {
      readonly schema = db.schema;
    }
    class SettingsModule {}
    Module({ providers: [Settings], exports: [Settings] })(SettingsModule);
    const { app } = await start(
      WaybillModule.forRootAsync({
        imports: [SettingsModule],
        inject: [Settings],
        useFactory: ({ schema }: Settings) => Promise.resolve({ schema }),
      }),
    );
    const message = { topic: 'nest-async' };
    await db.inTransaction((client) => app.get(Outbox).enqueue(client, message));
  });

  test('invalid options are reported at once', async () => {
    const wrong = { shema: 'outbox' } as object;
    expect(() => WaybillModule.forRoot(wrong)).toThrow(
      /WaybillModule.shema is not an option: use schema, maxPayloadBytes, maxHeaderBytes, events, unrouted, shard, relay, onEvent/,
    );
    expect(() => WaybillModule.forRoot({ maxPayloadBytes: 0 })).toThrow(ConfigurationError);
    const relay = { ...relayOf('nest-wrong', () => undefined), routes: [{ topic: 'a', to: 'b' }] };
    await expect(start(WaybillModule.forRoot({ relay }))).rejects.toThrow(ConfigurationError);
    expect(await livingRelays()).toBe(0);
  });

  test('an application in CommonJS requires the built package', async () => {
    const script = `
      require('reflect-metadata');
      const { Module } = require('@nestjs/common');
      const { NestFactory } = require('@nestjs/core');
      const { Outbox, WaybillModule } = require('waybill/nestjs');
      class Application {}
      Module({ imports: [WaybillModule.forRoot()] })(Application);
      NestFactory.createApplicationContext(Application, { logger: false }).then(async (app) => {
        console.log(typeof app.get(Outbox).enqueue);
        await app.close();
      });`;
    const cwd = path.resolve('test/adapters/generated');
    const program = runNode(['--input-type=commonjs', '-e', script], { cwd });
    expect(await program.ended()).toMatchObject({ code: 0, stdout: 'function\n' });
  });

  test('M1 M11 the example registers a user, and its relay welcomes them', async () => {
    process.env['DATABASE_URL'] = db.url;
    await db.query('CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE)');
    const said: unknown[] = [];
    const log = vi
      .spyOn(console, 'log')
      .mockImplementation((line: unknown) => void said.push(line));
    onTestFinished(() => log.mockRestore());
    const { AppModule, Registration } = (await import(
      path.resolve('test/adapters/generated/examples/nestjs/app.module.ts')
    )) as {
      AppModule: object;
      Registration: new (...rest: never[]) => { register(email: string): Promise<string> };
    };
    const { app, close } = await start(AppModule);
    await app.get(Registration).register('ada@example.com');
    await waitFor(() => said.includes('welcome ada@example.com'), { what: 'the welcome' });
    await close();
    expect(await livingRelays()).toBe(0);
  });
});
