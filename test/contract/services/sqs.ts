// ElasticMQ as SQS: an independent emulator with its own checks of every entry, which keeps its messages in a file. The
// real SQS cannot run here.

import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { DeleteMessageBatchCommand, ReceiveMessageCommand, SQSClient } from '@aws-sdk/client-sqs';
import type { Message } from '@aws-sdk/client-sqs';

import { sqs } from '../../../src/destinations/sqs/sqs.js';
import type { SqsOptions } from '../../../src/destinations/sqs/sqs.js';
import { ServiceProcess } from './process.js';
import { freePort } from '../../support/free-port.js';
import type { Address, RunningService, ServiceKind } from './service.js';

const { jarsOf } = (await import(path.resolve('scripts/jars.mjs'))) as {
  jarsOf: (name: string) => string;
};
const jars = jarsOf('elasticmq');
const java = process.env['WAYBILL_TEST_JAVA'] ?? '/usr/bin/java';
const queues = ['contract', 'other', 'other.fifo', 'contract.fifo'];

export const sqsLargestBytes = 1024 * 1024;
export const sqsCredentials = { accessKeyId: 'test', secretAccessKey: 'test-secret' };

export function sqsUnavailable(): string | null {
  if (!existsSync(java))
    return `no Java at ${java}: install it (Debian: openjdk-17-jre-headless) or set WAYBILL_TEST_JAVA to its program`;
  return existsSync(jars) ? null : `no ElasticMQ in ${jars}: run node scripts/jars.mjs elasticmq`;
}

export type RunningSqs = RunningService & {
  urlOf(queue: string): string;
  readonly client: SQSClient;
  /** Reads and removes the messages of the queue. */
  take(queue: string): Promise<Message[]>;
};

export async function startSqs(): Promise<RunningSqs> {
  const address = { host: '127.0.0.1', port: await freePort() };
  const origin = `http://${address.host}:${address.port}`;
  const client = new SQSClient({
    region: 'elasticmq',
    endpoint: origin,
    credentials: sqsCredentials,
    maxAttempts: 1,
  });
  const server = new ServiceProcess('elasticmq', {
    program: java,
    args: (directory) => {
      const file = path.join(directory, 'elasticmq.conf');
      writeFileSync(file, configuration(address, directory));
      // it lives for a minute: compilation would cost more at the start than it saves later
      const settings = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', `-Dconfig.file=${file}`];
      return [...settings, '-cp', path.join(jars, '*'), 'org.elasticmq.server.Main'];
    },
    answers: () =>
      take('contract.fifo').then(
        () => true,
        () => false,
      ),
  });
  const urlOf = (queue: string): string => `${origin}/000000000000/${queue}`;
  const take = async (queue: string): Promise<Message[]> => {
    const all: Message[] = [];
    for (;;) {
      const { Messages: some = [] } = await client.send(
        new ReceiveMessageCommand({
          QueueUrl: urlOf(queue),
          MaxNumberOfMessages: 10,
          MessageAttributeNames: ['All'],
          MessageSystemAttributeNames: ['All'],
        }),
      );
      if (some.length === 0) return all;
      all.push(...some);
      const Entries = some.map(({ ReceiptHandle }, index) => ({
        Id: String(index),
        ReceiptHandle,
      }));
      await client.send(new DeleteMessageBatchCommand({ QueueUrl: urlOf(queue), Entries }));
    }
  };
  await server.start();
  const received: string[] = [];
  return {
    address,
    client,
    urlOf,
    take,
    received: async () => {
      const messages = await take('contract');
      received.push(
        ...messages.map(
          ({ MessageAttributes }) => MessageAttributes?.['waybill-id']?.StringValue ?? '',
        ),
      );
      return received;
    },
    kill: () => server.kill(),
    restart: () => server.start(),
    stop: async () => {
      client.destroy();
      await server.stop();
    },
  };
}

/** H2 writes a commit to the file at once, so that a kill loses no acknowledged message. */
function configuration({ host, port }: Address, directory: string): string {
  const defined = queues.map((name) => `"${name}" { fifo = ${name.endsWith('.fifo')} }`);
  return `
    include classpath("application.conf")
    pekko.loglevel = "WARNING"
    node-address { protocol = http, host = "${host}", port = ${port}, context-path = "" }
    rest-sqs { enabled = true, bind-hostname = "${host}", bind-port = ${port}, sqs-limits = strict }
    rest-stats { enabled = false }
    queues { ${defined.join(', ')} }
    messages-storage {
      enabled = true
      driver-class = "org.h2.Driver"
      uri = "jdbc:h2:${path.join(directory, 'messages')};WRITE_DELAY=0"
      username = "sa"
      password = ""
    }
  `;
}

function optionsOf({ host, port }: Address, queue: string): SqsOptions {
  return {
    queueUrl: `http://${host}:${port}/000000000000/${queue}`,
    region: 'elasticmq',
    credentials: sqsCredentials,
  };
}

export const sqsService: ServiceKind = {
  kind: 'sqs',
  service: 'ElasticMQ, an emulator',
  unavailable: sqsUnavailable,
  start: startSqs,
  make(through, { missing, picky, ...settings } = {}) {
    if (!picky)
      return sqs({ ...optionsOf(through, missing ? 'missing' : 'contract'), ...settings });
    // SQS accepts group names of at most 128 characters
    const messageGroupId = `${'g'.repeat(120)}{topic}`;
    return sqs({ ...optionsOf(through, 'contract.fifo'), messageGroupId, ...settings });
  },
  source: (through) => `waybill.sqs(${JSON.stringify(optionsOf(through, 'contract'))})`,
  tooLargeBytes: sqsLargestBytes,
  expected: {
    missing: { kind: 'retry', code: 'queue_missing' },
    oversized: { kind: 'reject', code: 'message_too_large' },
    refusedInBatch: { kind: 'reject', code: 'content_refused' },
  },
};
