// The package's type declarations are self-contained: an application that also checks libraries (skipLibCheck: false)
// needs only the types of Node, whatever client libraries Waybill uses.

import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

import { expect, it, onTestFinished } from 'vitest';

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

async function run(...parameters: string[]): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [tsc, ...parameters]);
    return stdout;
  } catch (error) {
    return (error as { stdout?: string }).stdout ?? String(error);
  }
}

/** A project with nothing installed but this package, as published, and the types of Node. */
async function project(): Promise<string> {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-types-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const installed = path.join(directory, 'node_modules');
  mkdirSync(path.join(installed, 'waybill'), { recursive: true });
  mkdirSync(path.join(installed, '@types'));
  symlinkSync(path.join(root, 'node_modules/@types/node'), path.join(installed, '@types/node'));
  cpSync(path.join(root, 'package.json'), path.join(installed, 'waybill/package.json'));
  const declared = ['--emitDeclarationOnly', '--sourceMap', 'false', '--outDir'];
  const build = ['-p', path.join(root, 'tsconfig.build.json'), ...declared];
  expect(await run(...build, path.join(installed, 'waybill/dist'))).toBe('');
  writeFileSync(path.join(directory, 'package.json'), '{ "type": "module" }');
  writeFileSync(path.join(directory, 'app.ts'), consumer);
  const compilerOptions = {
    target: 'es2023',
    module: 'nodenext',
    types: ['node'],
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
    noEmit: true,
  };
  writeFileSync(path.join(directory, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
  return directory;
}

it(
  'the declarations need only the types of Node, with skipLibCheck off',
  { timeout: 120_000 },
  async () => {
    const directory = await project();
    expect(await run('-p', directory)).toBe('');
  },
);
