// Options of the Kafka destination. Passwords and keys are never shown, not even when they are refused.

import zlib from 'node:zlib';

import {
  checkOptions,
  choice,
  flag,
  integer,
  list,
  optional,
  refuse,
  text,
} from '../../core/options.js';
import { settingKinds } from '../destination.js';
import type { DestinationSettings } from '../destination.js';
import { template } from '../template.js';

const compressions = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;

export type Compression = (typeof compressions)[number];
export type Broker = { readonly host: string; readonly port: number };

export type KafkaOptions = DestinationSettings & {
  /** Some brokers of the cluster, for the first connection: `['kafka-1:9092', 'kafka-2:9092']`. */
  brokers: string[];
  /** The Kafka topic, with fields of the message in braces: `{topic}`, `orders-{tenantId}`. */
  topic: string;
  /** `cloudevents`: CloudEvents 1.0 in the binary mode of the Kafka binding. Default `plain`. */
  format?: 'plain' | 'cloudevents';
  /** The `source` of the CloudEvents. Default: `/waybill/` and the namespace. */
  source?: string;
  /** The compression of batches. Default `none`. */
  compression?: Compression;
  /** The most messages in one call. Default 500. */
  batchSize?: number;
  /** The client id in the brokers' logs and quotas. Default `waybill`. */
  clientId?: string;
  /** The login. */
  sasl?: KafkaSasl;
  /** `true`, or `{ ca, cert, key, passphrase, servername }`. Default `false`. */
  tls?: boolean | KafkaTls;
  /** Whether brokers should create topics that do not exist. Default `false`. */
  allowAutoTopicCreation?: boolean;
};

export type KafkaSasl = {
  mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512';
  username: string;
  password: string;
};

/** Texts in the PEM format, and the name that the certificate must have, if it is not the broker's own. */
export type KafkaTls = {
  ca?: string;
  cert?: string;
  key?: string;
  passphrase?: string;
  servername?: string;
};

export function resolveKafkaOptions(options: KafkaOptions) {
  return checkOptions('kafka', options, {
    ...settingKinds,
    // each call in flight has its own connections
    concurrency: integer({ min: 1, max: 100, default: 5 }),
    brokers: list(brokerAddress, { min: 1, max: 100 }),
    topic: template(),
    format: choice('plain', 'cloudevents'),
    source: optional(text({ meaning: 'a URI, such as /orders' })),
    compression,
    batchSize: integer({ min: 1, max: 10_000, default: 500 }),
    clientId: text({
      default: 'waybill',
      pattern: /^[\w.-]{1,200}$/,
      meaning: 'letters, digits, `.`, `_` and `-`',
    }),
    sasl: optional(sasl),
    tls,
    allowAutoTopicCreation: flag(false),
  });
}

function brokerAddress(name: string, value: unknown): Broker {
  const found =
    typeof value === 'string'
      ? /^(?:\[([0-9a-f:.]+)\]|([^\s:@/[\]]+)):(\d{1,5})$/i.exec(value)
      : null;
  const host = found?.[1] ?? found?.[2];
  const port = Number(found?.[3]);
  if (host === undefined || port < 1 || port > 65_535) {
    // there may be a password before an @
    const shown = typeof value === 'string' && value.includes('@') ? '…' : value;
    return refuse(name, shown, "give the host and the port, such as 'kafka-1:9092'");
  }
  return { host, port };
}

const anyCompression = choice(...compressions);

function compression(name: string, value: unknown): Compression {
  const chosen = anyCompression(name, value);
  if (chosen === 'zstd' && !('zstdCompressSync' in zlib))
    refuse(name, value, 'use another one: this Node cannot do it, 22.15 and newer can');
  return chosen;
}

const secret = (name: string, value: unknown): string =>
  typeof value === 'string' && value !== '' ? value : refuse(name, '…', 'give text');

function sasl(name: string, value: unknown): KafkaSasl {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return refuse(name, '…', 'give { mechanism, username, password }');
  return checkOptions(name, value, {
    mechanism: choice('plain', 'scram-sha-256', 'scram-sha-512'),
    username: text({ meaning: 'the name to log in with' }),
    password: secret,
  });
}

function tls(name: string, value: unknown): Record<string, string> | undefined {
  if (value === undefined || value === false) return undefined;
  if (value === true) return {};
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return refuse(name, '…', 'give true, false or { ca, cert, key, passphrase, servername }');
  const given = checkOptions(name, value, {
    ca: optional(secret),
    cert: optional(secret),
    key: optional(secret),
    passphrase: optional(secret),
    servername: optional(text({ meaning: 'the name in the certificate' })),
  });
  const entries = Object.entries(given).filter((entry) => entry[1] !== undefined);
  return Object.fromEntries(entries) as Record<string, string>;
}
