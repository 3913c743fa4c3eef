// The type declarations of the packed package are self-contained: an application that also checks libraries
// (skipLibCheck: false) needs only the types of Node, whatever client libraries Waybill uses, in every way that
// TypeScript resolves modules.

import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

import { afterAll, beforeAll, expect, it } from 'vitest';

import { packInto, unpackInto } from '../support/packed.js';

const root = path.resolve(import.meta.dirname, '../..');
const tsc = path.join(root, 'node_modules/typescript/bin/tsc');

const consumer = `
import { createInbox, createOutbox, createRelay, createShardedRelay, defineConfig, handler, migrateUp, subscribe, webhook } from 'waybill';
import { WaybillModule } from 'waybill/nestjs';
import { createOutbox as createSmallOutbox } from 'waybill/producer';
import { createReceiver } from 'waybill/receiver';
import type { WebhookEvent } from 'waybill/receiver';
import { createTestKit } from 'waybill/testing';
import type { DeadLetter, TestKit } from 'waybill/testing';
import { kafka } from 'waybill/kafka';
import type { KafkaOptions, KafkaSasl, KafkaTls } from 'waybill/kafka';
import { nats } from 'waybill/nats';
import type { NatsOptions } from 'waybill/nats';
import { rabbitmq } from 'waybill/rabbitmq';
import type { RabbitmqOptions } from 'waybill/rabbitmq';
import { redis } from 'waybill/redis';
import type { RedisMaxLength, RedisOptions } from 'waybill/redis';
import { sqs } from 'waybill/sqs';
import type { SqsCredentials, SqsOptions } from 'waybill/sqs';

const outbox = createOutbox();
const config = defineConfig({
  destinations: {
    here: handler((message) => console.log(message.sequence)),
    kafka: kafka({ brokers: ['127.0.0.1:9092'], topic: '{topic}', compression: 'gzip' }),
    partner: webhook({ url: 'https://example.com/' }),
  },
  routes: [{ topic: '*', to: 'here' }],
});
export const sequence = async (tx: { query(sql: string, values: unknown[]): Promise<unknown> }): Promise<string | null> =>
  (await outbox.enqueue(tx, { topic: 'user.registered' })).sequence;
export const dead = async (tx: { query(sql: string, values: unknown[]): Promise<unknown> }): Promise<DeadLetter[]> => {
  const kit: TestKit = await createTestKit(tx, config, { send: ['partner'] });
  return kit.deadLetters({ topic: 'user.registered' });
};
const sasl: KafkaSasl = { mechanism: 'plain', username: 'waybill', password: 'secret' };
const tls: KafkaTls = {};
const kafkaOptions: KafkaOptions = { brokers: ['127.0.0.1:9092'], topic: '{topic}', sasl, tls };
const natsOptions: NatsOptions = { servers: 'nats://127.0.0.1:4222', subject: '{topic}' };
const rabbitmqOptions: RabbitmqOptions = { url: 'amqp://127.0.0.1', exchange: 'shop', routingKey: '{topic}' };
const maxLength: RedisMaxLength = { count: 1_000_000 };
const redisOptions: RedisOptions = { url: 'redis://127.0.0.1:6379', maxLength };
const credentials: SqsCredentials = { accessKeyId: 'id', secretAccessKey: 'secret' };
const sqsOptions: SqsOptions = { queueUrl: 'https://sqs.eu-west-1.amazonaws.com/1/orders', credentials };
export const alone = defineConfig({
  destinations: {
    kafka: kafka(kafkaOptions),
    nats: nats(natsOptions),
    rabbitmq: rabbitmq(rabbitmqOptions),
    redis: redis(redisOptions),
    sqs: sqs(sqsOptions),
  },
  routes: [],
});
export const receive = createReceiver({ secrets: 'whsec_' }).toFetch((event: WebhookEvent) => console.log(event.id));
export const all = [createInbox, createShardedRelay, migrateUp, nats, rabbitmq, redis, sqs, subscribe, WaybillModule, createSmallOutbox, createRelay(config)];
`;

const manifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  exports: Record<string, unknown>;
};
/** Loads all types of every entry point, also of those that the program above does not use. */
const everything = Object.keys(manifest.exports)
  .map((entry, index) => `export * as entry${index} from 'waybill${entry.slice(1)}';\n`)
  .join('');

async function run(...parameters: string[]): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [tsc, ...parameters]);
    return stdout;
  } catch (error) {
    return (error as { stdout?: string }).stdout ?? String(error);
  }
}

/** A project with nothing installed but this package, as published, and the types of Node. */
const project = mkdtempSync(path.join(os.tmpdir(), 'waybill-types-'));
beforeAll(async () => {
  await unpackInto(project, await packInto(project), ['@types/node']);
  writeFileSync(path.join(project, 'app.ts'), consumer + everything);
}, 120_000);
afterAll(() => rmSync(project, { recursive: true }));

it.each([
  { type: 'module', module: 'node16', moduleResolution: 'node16' },
  { type: 'module', module: 'esnext', moduleResolution: 'bundler' },
  { type: 'commonjs', module: 'nodenext', moduleResolution: 'nodenext' },
])(
  'the declarations need only the types of Node, in a project of $type with $moduleResolution',
  { timeout: 120_000 },
  async ({ type, ...resolution }) => {
    writeFileSync(path.join(project, 'package.json'), JSON.stringify({ type }));
    const compilerOptions = {
      ...resolution,
      target: 'es2023',
      types: ['node'],
      strict: true,
      exactOptionalPropertyTypes: true,
      skipLibCheck: false,
      noEmit: true,
    };
    const config = JSON.stringify({ compilerOptions, files: ['app.ts'] });
    writeFileSync(path.join(project, 'tsconfig.json'), config);
    expect(await run('-p', project)).toBe('');
  },
);
