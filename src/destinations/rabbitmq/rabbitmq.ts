// RabbitMQ destination. A message is delivered when the broker has confirmed it and not returned it: it is in every
// queue that it was routed to, on disk if the queue is durable. A message that no queue takes is confirmed too, so each
// is sent as mandatory, and a returned one is a failure. The broker gives no lasting receipt (a delivery tag counts
// within one channel), so the message's own id, which consumers see, is the reference.

import { messageHeaders } from '../../core/message-headers.js';
import { checkOptions, choice, integer, optional, refuse, text } from '../../core/options.js';
import { delivered, reject } from '../../core/outcome.js';
import { tlsOptions } from '../credentials.js';
import type { TlsOptions } from '../credentials.js';
import { settingKinds } from '../destination.js';
import { definitionOf } from '../definition.js';
import type { DestinationSettings, SingleDestination } from '../destination.js';
import { outcomeOf, problemOf } from '../failures.js';
import type { Rules } from '../failures.js';
import { SharedConnection } from '../shared-connection.js';
import { loadOptionalDependency } from '../optional-dependency.js';
import { cloudEventHeaders, envelopeOf, frameBytes } from './message.js';
import { Publisher, openConnection } from './publisher.js';
import { template, unlessOthersMay } from '../template.js';

export type RabbitmqOptions = DestinationSettings & {
  /** Publishes that wait for their confirm at once, per relay. Default 100. */
  concurrency?: number;
  /** The address of the broker: `amqp://user:password@host:5672/vhost`, or `amqps://…`. Its user and password are never shown. */
  url: string;
  /** The exchange that each message is published to; without it, the default exchange, whose routing keys are names of queues. */
  exchange?: string;
  /** The routing key of each message. Default `{topic}`. */
  routingKey?: string;
  /** `cloudevents`: attributes as `cloudEvents:…` headers, instead of `waybill-…` ones. Default `waybill`. */
  format?: 'waybill' | 'cloudevents';
  /** The source of the CloudEvents. Default `/waybill/NAMESPACE`. */
  source?: string;
  /** For `amqps://`: `{ ca, cert, key, servername }` as PEM text. */
  tls?: boolean | TlsOptions;
};

/** By AMQP's names for its codes, and by names of the library's errors. */
export const rabbitmqFailures: Rules = {
  ReturnedError: { kind: 'retry', code: 'unroutable' },
  BlockedError: { kind: 'retry', code: 'destination_full' },
  NACK: { kind: 'retry', code: 'nacked' },
  NOT_FOUND: { kind: 'retry', code: 'exchange_missing' },
  NOT_ALLOWED: { kind: 'retry', code: 'vhost_refused' },
  ACCESS_REFUSED: { kind: 'pause', code: 'access_refused' },
  PRECONDITION_FAILED: { kind: 'reject', code: 'message_too_large' },
  CONTENT_TOO_LARGE: { kind: 'reject', code: 'message_too_large' },
  unknown: { kind: 'retry', code: 'rabbitmq_error' },
};

const connectTimeoutMs = 5000;
const heartbeatSeconds = 20;

export function rabbitmq(options: RabbitmqOptions): SingleDestination {
  const checked = checkOptions('rabbitmq', options, {
    ...settingKinds,
    concurrency: integer({ min: 1, max: 10_000, default: 100 }),
    url: brokerUrl,
    exchange: optional(template()),
    routingKey: template('{topic}'),
    format: choice('waybill', 'cloudevents'),
    source: optional(text({ meaning: 'a URI reference' })),
    tls: tlsOptions,
  });
  const { url, exchange, routingKey, format, source, tls, ...settings } = checked;
  if (tls !== undefined && !url.secure) refuse('rabbitmq.tls', '…', 'use an amqps:// address');
  const fixedExchange = /[{}]/.test(options.exchange ?? '') ? undefined : options.exchange;
  let link: SharedConnection<Publisher> | undefined;

  return {
    kind: 'rabbitmq',
    settings,
    definition: definitionOf(options, checked, ['tls']),
    async open() {
      const { Connection } = await loadOptionalDependency(
        'rabbitmq',
        'rabbitmq-client',
        () => import('rabbitmq-client'),
      );
      const { secure, ...place } = url;
      link = new SharedConnection<Publisher>({
        async connect(closing, lost) {
          const connection = new Connection({
            ...place,
            ...(secure && { tls: tls ?? {} }),
            connectionName: 'waybill',
            connectionTimeout: connectTimeoutMs,
            heartbeat: heartbeatSeconds,
            frameMax: frameBytes,
            noDelay: true,
          });
          return new Publisher(await openConnection(connection, closing, lost));
        },
        end: ({ connection }) => connection.unsafeDestroy(),
      });
    },
    async deliver(message, { signal }) {
      if (link === undefined) throw new Error('the rabbitmq destination is not open');
      const to = { exchange: exchange?.(message) ?? '', routingKey: routingKey(message) };
      if (to.routingKey === null || (exchange !== undefined && to.exchange === ''))
        return reject({
          code: 'name_incomplete',
          message: 'the message lacks a field of `exchange` or `routingKey`',
        });
      const headers =
        format === 'cloudevents' ? cloudEventHeaders(message, source) : messageHeaders(message);
      const envelope = envelopeOf(message, to.exchange, to.routingKey, headers);
      if (!('messageId' in envelope)) return envelope;
      try {
        return await link.use(signal, async (publisher) => {
          await publisher.publish(envelope, Buffer.from(message.payloadText), signal);
          return delivered(message.id);
        });
      } catch (error) {
        const varies = exchange?.varies ?? false;
        return unlessOthersMay(outcomeOf(error, rabbitmqFailures, signal), { varies });
      }
    },
    async health({ signal }) {
      if (link === undefined) return { ok: false, problem: 'the rabbitmq destination is not open' };
      try {
        return await link.use(signal, async ({ connection, blocked }) => {
          const channel = await connection.acquire({ emitErrorsFromChannel: true });
          channel.on('error', () => undefined);
          if (fixedExchange !== undefined)
            await channel.exchangeDeclare({ exchange: fixedExchange, passive: true });
          void channel.close();
          return blocked === null
            ? { ok: true }
            : { ok: false, problem: `the broker takes no messages: ${blocked}` };
        });
      } catch (error) {
        return { ok: false, problem: problemOf(outcomeOf(error, rabbitmqFailures, signal)) };
      }
    },
    close() {
      link?.close();
    },
  };
}

type Place = {
  hostname: string;
  port: number;
  username: string;
  password: string;
  vhost: string;
  secure: boolean;
};

/** The value contains a password and is never shown. */
function brokerUrl(name: string, value: unknown): Place {
  const advice = 'give an address such as amqp://user:password@host:5672/vhost, and nothing behind';
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url === null || !/^amqps?:$/.test(url.protocol) || url.hostname === '')
    return refuse(name, value === undefined ? value : '…', advice);
  const [, vhost = '', ...more] = url.pathname.split('/');
  if (url.search !== '' || url.hash !== '' || more.length > 0) return refuse(name, '…', advice);
  const secure = url.protocol === 'amqps:';
  try {
    return {
      hostname: url.hostname.replace(/^\[|\]$/g, ''),
      port: Number(url.port) || (secure ? 5671 : 5672),
      username: decodeURIComponent(url.username) || 'guest',
      password: url.username === '' ? 'guest' : decodeURIComponent(url.password),
      vhost: decodeURIComponent(vhost) || '/',
      secure,
    };
  } catch {
    return refuse(name, '…', 'encode special characters in it, such as %2F for a slash');
  }
}
