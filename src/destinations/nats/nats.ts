// NATS JetStream destination. A message is delivered when a stream has stored it and acknowledged it; its place in the
// stream is the receipt. `Nats-Msg-Id` is the message's id and its subject: if an acknowledgement was lost, the stream
// recognises the duplicate and does not store it again. Calls share one connection and wait for their acknowledgements
// in parallel.

import type { JetStreamClient } from '@nats-io/jetstream';
import type { ConnectionOptions, MsgHdrs, NatsConnection } from '@nats-io/transport-node';

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { checkOptions, choice, integer, optional, text } from '../../core/options.js';
import { delivered, reject, retry } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import { tlsOptions } from '../credentials.js';
import type { TlsOptions } from '../credentials.js';
import { settingKinds } from '../destination.js';
import { definitionOf } from '../definition.js';
import type {
  DeliveryContext,
  DestinationSettings,
  Health,
  SingleDestination,
} from '../destination.js';
import { outcomeOf, problemOf } from '../failures.js';
import type { Rules } from '../failures.js';
import { SharedConnection, UnreachableError } from '../shared-connection.js';
import { natsHeaders } from './headers.js';
import { loginKinds, oneLogin } from './login.js';
import { firstThatGreets, serverAddresses, wantsTls } from './servers.js';
import { loadOptionalDependency } from '../optional-dependency.js';
import { template, unlessOthersMay } from '../template.js';

export type NatsOptions = DestinationSettings & {
  /** Publishes that wait for their acknowledgement at once, per relay. Default 100. */
  concurrency?: number;
  /** The addresses of servers: `nats://host:4222`, or a list; they are tried in turn. */
  servers: string | readonly string[];
  /** The subject of each message. Default `{topic}`. */
  subject?: string;
  /** The stream that must store the message: if the subject leads to another one, the delivery fails. */
  stream?: string;
  /** `cloudevents`: attributes as `ce-…` headers, instead of `waybill-…` ones. Default `waybill`. */
  format?: 'waybill' | 'cloudevents';
  /** The source of the CloudEvents. Default `/waybill/NAMESPACE`. */
  source?: string;
  /** A token to log in with. Never shown. */
  token?: string;
  /** A user to log in as, together with `password`. */
  user?: string;
  /** The password of `user`. Never shown. */
  password?: string;
  /** The seed of an nkey to log in with. Never shown. */
  nkey?: string;
  /** The text of a credentials file to log in with. Never shown. */
  credentials?: string;
  /** `true`, or `{ ca, cert, key, servername }` as PEM text; then it connects only with TLS. */
  tls?: boolean | TlsOptions;
};

/** JetStream's error codes are numbers; the others are names of the library's errors. */
export const natsFailures: Rules = {
  NoResponders: { kind: 'retry', code: 'stream_missing' },
  10059: { kind: 'retry', code: 'stream_missing' },
  10060: { kind: 'retry', code: 'stream_mismatch' },
  10054: { kind: 'reject', code: 'message_too_large' },
  10097: { kind: 'reject', code: 'message_too_large' },
  InvalidArgumentError: { kind: 'reject', code: 'message_too_large' },
  10109: { kind: 'reject', code: 'stream_sealed' },
  10077: { kind: 'retry', code: 'store_failed' },
  10002: { kind: 'retry', code: 'destination_full' },
  10023: { kind: 'retry', code: 'destination_full' },
  10028: { kind: 'retry', code: 'destination_full' },
  10047: { kind: 'retry', code: 'destination_full' },
  10053: { kind: 'retry', code: 'store_failed' },
  10008: { kind: 'retry', code: 'destination_unavailable' },
  10009: { kind: 'retry', code: 'destination_unavailable' },
  10158: { kind: 'retry', code: 'destination_unavailable' },
  10167: { kind: 'retry', code: 'throttled' },
  10039: { kind: 'pause', code: 'jetstream_disabled' },
  10076: { kind: 'pause', code: 'jetstream_disabled' },
  AuthorizationError: { kind: 'pause', code: 'not_authenticated' },
  UserAuthenticationExpiredError: { kind: 'pause', code: 'not_authenticated' },
  PermissionViolationError: { kind: 'pause', code: 'not_authorized' },
  unknown: { kind: 'retry', code: 'nats_error' },
};

const connectTimeoutMs = 5000;
const pingMs = 20_000;
// no white space, no wildcards, no empty words, and none of the subjects that servers and JetStream use
const soundSubject = /^(?!\$)[^\s*>.]+(\.[^\s*>.]+)*$/;

type Open = {
  readonly connection: NatsConnection;
  readonly client: JetStreamClient;
  readonly headers: () => MsgHdrs;
};

export function nats(options: NatsOptions): SingleDestination {
  const checked = checkOptions('nats', options, {
    ...settingKinds,
    concurrency: integer({ min: 1, max: 10_000, default: 100 }),
    servers: serverAddresses,
    subject: template('{topic}'),
    stream: optional(
      text({ pattern: /^[^\s.*>/\\]+$/, meaning: 'the name of a stream, without . * > or spaces' }),
    ),
    format: choice('waybill', 'cloudevents'),
    source: optional(text({ meaning: 'a URI reference' })),
    ...loginKinds,
    tls: tlsOptions,
  });
  const { servers, subject, stream, format, source, tls, ...rest } = checked;
  const { token, user, password, nkey, credentials, ...settings } = rest;
  const login = oneLogin({ token, user, password, nkey, credentials });
  let link: SharedConnection<Open> | undefined;

  async function publish(open: Open, message: ClaimedMessage, to: string): Promise<Outcome> {
    const pairs = natsHeaders(message, format, source);
    if (typeof pairs === 'string') return reject({ code: 'header_invalid', message: pairs });
    const headers = open.headers();
    for (const [name, value] of pairs) headers.append(name, value);
    const ack = await open.client.publish(to, message.payloadText, {
      // a stream remembers ids but not subjects: another destination may send the same message to the same stream
      msgID: `${message.id} ${to}`,
      headers,
      ...(stream !== undefined && { expect: { streamName: stream } }),
      // longer than the signal, so that the signal decides
      timeout: settings.timeoutMs + 1000,
    });
    // on a subject without a stream, any subscriber may answer
    if (typeof ack?.stream !== 'string' || ack.stream === '' || !Number.isInteger(ack.seq))
      return retry({ code: 'stream_missing', message: 'what answered is not a stream' });
    const reference = `${ack.stream}/${ack.seq}`;
    return delivered(ack.duplicate ? { reference, remoteCode: 'duplicate' } : reference);
  }

  return {
    kind: 'nats',
    settings,
    definition: definitionOf(options, checked, [
      'token',
      'user',
      'password',
      'nkey',
      'credentials',
      'tls',
    ]),
    async open() {
      const core = await loadOptionalDependency(
        'nats',
        '@nats-io/transport-node',
        () => import('@nats-io/transport-node'),
      );
      const { jetstream } = await loadOptionalDependency(
        'nats',
        '@nats-io/jetstream',
        () => import('@nats-io/jetstream'),
      );
      const common: ConnectionOptions = {
        name: 'waybill',
        // the shared connection connects again, and publishes in flight on the old one end at once
        reconnect: false,
        timeout: connectTimeoutMs,
        pingInterval: pingMs,
        noAsyncTraces: true,
        ...login(core),
      };
      link = new SharedConnection<Open>({
        async connect(closing, lost) {
          const server = await firstThatGreets(servers, connectTimeoutMs, closing);
          const tlsNeeded = tls ?? (wantsTls(server) ? {} : undefined);
          const how = { ...common, servers: server, ...(tlsNeeded && { tls: tlsNeeded }) };
          const connection = await core.connect(how).catch((error: unknown) => {
            // a login that timed out looks like a rejected one: only the second rejection counts
            if (!(error instanceof core.errors.AuthorizationError)) throw error;
            return core.connect(how);
          });
          void connection.closed().then(lost);
          return { connection, client: jetstream(connection), headers: core.headers };
        },
        end: ({ connection }) => void connection.close().catch(() => undefined),
      });
    },
    async deliver(message, { signal }) {
      if (link === undefined) throw new Error('the nats destination is not open');
      const to = subject(message);
      if (to === null)
        return reject({
          code: 'name_incomplete',
          message: 'the message lacks a field of `subject`',
        });
      if (!soundSubject.test(to))
        return reject({ code: 'subject_invalid', message: `${to} is not a subject to publish to` });
      try {
        return await link.use(signal, async (open) => {
          try {
            return await publish(open, message, to);
          } catch (error) {
            throw open.connection.isClosed()
              ? new UnreachableError('the connection broke', { cause: error })
              : error;
          }
        });
      } catch (error) {
        return unlessOthersMay(outcomeOf(error, natsFailures, signal), subject);
      }
    },
    async health(context) {
      if (link === undefined) return { ok: false, problem: 'the nats destination is not open' };
      return lookAt(link, stream, context);
    },
    close() {
      link?.close();
    },
  };
}

/** Checks that the stream, or JetStream, exists. Skips the check for a user that may publish but not read this. */
async function lookAt(
  link: SharedConnection<Open>,
  stream: string | undefined,
  { signal }: DeliveryContext,
): Promise<Health> {
  try {
    await link.use(signal, async ({ connection, client }) => {
      await connection.flush();
      const manager = await client.jetstreamManager(false);
      await (stream === undefined ? manager.getAccountInfo() : manager.streams.info(stream));
    });
    return { ok: true };
  } catch (error) {
    const failure = outcomeOf(error, natsFailures, signal);
    return 'remoteCode' in failure && failure.remoteCode === 'PermissionViolationError'
      ? { ok: true }
      : { ok: false, problem: problemOf(failure) };
  }
}
