// The tables of options. They are found by asking the code itself: an unknown key makes it list the known
// ones, nonsense makes it state the allowed range, and nothing at all makes it give its defaults. Only the
// words come from the comments beside the types.

import { readFileSync } from 'node:fs';

import { createJiti } from 'jiti';

const jiti = createJiti(import.meta.url);

/**
 * @typedef {{ meaning?: string, fallback?: string, allowed?: string }} Words
 * @typedef {{ file: string, type?: string, resolve: (options: object) => object, base?: object, also?: string[],
 *   without?: string[], words?: Record<string, Words> }} Section
 */

/** Everything that the tables are made from, loaded from the sources. @returns {Promise<Record<string, Section>>} */
async function loadSections() {
  const load = (/** @type {string} */ file) => jiti.import(`../src/${file}`);
  const { createOutbox } = await load('outbox.ts');
  const { createInbox } = await load('inbox.ts');
  const { serializeMessage, defaultMaxPayloadBytes } = await load('model/message.ts');
  const { resolveDatabaseOptions } = await load('database/connection.ts');
  const { resolveSettings } = await load('destinations/destination.ts');
  const { batchHandler } = await load('destinations/handler.ts');
  const { nats } = await load('destinations/nats/nats.ts');
  const { rabbitmq } = await load('destinations/rabbitmq/rabbitmq.ts');
  const { webhook } = await load('destinations/webhook/webhook.ts');
  const { paymentGuard } = await load('destinations/payment-guard.ts');
  const { rateKind, breakerKind } = await load('model/rails.ts');
  const { resolveKafkaOptions } = await load('destinations/kafka/options.ts');
  const { resolveRetryPolicy } = await load('model/retry-policy.ts');
  const { checkRoutes } = await load('model/route.ts');
  const { checkWatch } = await load('model/watch.ts');
  const { resolveAlertOptions, resolveAlertWebhook } = await load('relay/alert-options.ts');
  const { resolveEndpointOptions } = await load('relay/endpoint-options.ts');
  const { resolveRelayOptions } = await load('relay/options.ts');
  const { resolveRetention } = await load('database/maintenance.ts');
  const { resolveAuditOptions } = await load('model/audit-options.ts');
  const { resolveSubscribeOptions } = await load('subscribe.ts');
  return {
    message: {
      file: 'model/message.ts',
      type: 'Message',
      base: { topic: 'a' },
      resolve: (message) => {
        serializeMessage(message, defaultMaxPayloadBytes);
        return {};
      },
      words: messageWords,
    },
    outbox: {
      file: 'outbox.ts',
      type: 'OutboxOptions',
      resolve: (options) => {
        createOutbox(options);
        return { maxPayloadBytes: defaultMaxPayloadBytes };
      },
      words: {
        schema: { meaning: 'The schema that Waybill lives in.' },
        maxPayloadBytes: { meaning: 'A longer payload is refused.' },
        events: { allowed: 'what `defineEvents` gives, see [typed events](typed-events.md)' },
        shard: { allowed: '`{ of, name }`, see [shards](shards.md)' },
      },
    },
    inbox: {
      file: 'inbox.ts',
      type: 'InboxOptions',
      resolve: (options) => {
        createInbox(options);
        return {};
      },
      words: { schema: { meaning: 'The schema that Waybill lives in.' } },
    },
    database: {
      file: 'database/connection.ts',
      type: 'DatabaseOptions',
      resolve: resolveDatabaseOptions,
      words: {
        url: { meaning: 'The address of the database.' },
        schema: { meaning: 'The schema that Waybill lives in.' },
        statementTimeoutMs: { meaning: 'No statement of Waybill runs longer.' },
        lockTimeoutMs: { meaning: 'No statement of Waybill waits longer for a lock.' },
        idleInTransactionTimeoutMs: {
          meaning: 'The server ends a session that idles longer inside a transaction.',
        },
        connectTimeoutMs: { meaning: 'How long a new connection may take.' },
      },
    },
    settings: {
      file: 'destinations/destination.ts',
      type: 'DestinationSettings',
      resolve: (options) => resolveSettings('handler', options),
      words: {
        retry: {
          meaning: 'When a failed delivery is tried again.',
          allowed: 'a retry policy, see below',
        },
        classify: { allowed: 'codes and `retry`, `reject` or `pause`, see [safety](safety.md)' },
        rate: { allowed: 'a rate limit, see [safety](safety.md)' },
        breaker: { allowed: 'a breaker, see [safety](safety.md), or `null`' },
      },
    },
    rate: {
      file: 'model/rails.ts',
      type: 'RateLimit',
      base: { perSecond: 1 },
      resolve: (options) => {
        rateKind('rate', options);
        return {};
      },
      words: { perSecond: { fallback: 'required' } },
    },
    breaker: {
      file: 'model/rails.ts',
      type: 'BreakerOptions',
      resolve: (options) => breakerKind('breaker', options),
    },
    paymentGuard: {
      file: 'destinations/payment-guard.ts',
      type: 'PaymentGuardOptions',
      base: { rails: { sepa: { destination: 'iban' } } },
      resolve: (options) => {
        paymentGuard(options);
        return {};
      },
      words: {
        rails: { fallback: 'required', allowed: 'names and `{ destination, currencies }`' },
        fields: {
          allowed:
            '`amount`, `currency`, `rail` and `destination`, each a path such as `payment.amount`',
        },
      },
    },
    batchHandler: {
      file: 'destinations/handler.ts',
      without: settingNames,
      resolve: (options) => batchHandler(() => Promise.resolve(), options),
      words: { batchSize: { meaning: 'Messages in one call, at most.' } },
    },
    webhook: {
      file: 'destinations/webhook/webhook.ts',
      type: 'WebhookOptions',
      without: settingNames,
      base: { url: 'https://example.com' },
      resolve: (options) => {
        webhook(options);
        return {};
      },
      words: {
        url: { fallback: 'required' },
        secrets: { allowed: 'one secret, or a list of 1 to 10' },
        headers: { allowed: 'an object of texts' },
        successCodes: { allowed: 'a list of statuses from 200 to 599' },
        terminalCodes: { allowed: 'a list of statuses from 200 to 599' },
      },
    },
    kafka: {
      file: 'destinations/kafka/options.ts',
      type: 'KafkaOptions',
      without: settingNames.filter((name) => name !== 'concurrency'),
      base: { brokers: ['kafka-1:9092'], topic: 'a' },
      resolve: resolveKafkaOptions,
      words: {
        concurrency: { meaning: 'Calls under way at once, per relay.' },
        brokers: { fallback: 'required', allowed: 'a list of 1 to 100 texts `host:port`' },
        topic: { fallback: 'required' },
        sasl: { allowed: '`{ mechanism, username, password }`' },
        tls: { allowed: '`true`, `false` or an object of texts' },
      },
    },
    nats: {
      file: 'destinations/nats/nats.ts',
      type: 'NatsOptions',
      without: settingNames.filter((name) => name !== 'concurrency'),
      base: { servers: 'nats://localhost' },
      resolve: (options) => nats(options).settings,
      words: {
        servers: { fallback: 'required' },
        tls: { allowed: '`true`, or an object with `ca`, `cert`, `key`, `servername`' },
      },
    },
    rabbitmq: {
      file: 'destinations/rabbitmq/rabbitmq.ts',
      type: 'RabbitmqOptions',
      without: settingNames.filter((name) => name !== 'concurrency'),
      base: { url: 'amqps://localhost' },
      resolve: (options) => rabbitmq(options).settings,
      words: {
        url: { fallback: 'required' },
        tls: { allowed: 'an object with `ca`, `cert`, `key`, `servername`' },
      },
    },
    retry: {
      file: 'model/retry-policy.ts',
      type: 'RetryPolicy',
      also: ['delaysMs'],
      resolve: (options) => {
        const policy = resolveRetryPolicy('retry', options);
        if ('delaysMs' in options) return {};
        const { maxAttempts, retryBaseMs: baseMs, retryMaxMs: maxMs } = policy;
        return { maxAttempts, baseMs, maxMs };
      },
      words: {
        delaysMs: {
          meaning: 'An explicit schedule instead: n delays, one first try and n retries.',
        },
      },
    },
    routes: {
      file: 'model/route.ts',
      type: 'Route',
      base: { topic: '*', to: 'crm' },
      resolve: (route) => {
        checkRoutes([route], new Set(['crm']));
        return {};
      },
      words: { topic: { fallback: 'required' }, to: { fallback: 'required' } },
    },
    watches: {
      file: 'model/watch.ts',
      type: 'Watch',
      base: { table: 'public.jobs', topic: 'job' },
      resolve: (watch) => {
        checkWatch('watches', watch);
        return {};
      },
      words: { table: { fallback: 'required' }, topic: { fallback: 'required' } },
    },
    endpoints: {
      file: 'relay/endpoint-options.ts',
      type: 'EndpointOptions',
      // described with the webhook, and with all destinations
      without: [
        'guard',
        'classify',
        'rate',
        'breaker',
        'body',
        'source',
        'method',
        'successCodes',
        'terminalCodes',
        'maxRetryAfterMs',
        'keepResponses',
        'allowedNetworks',
        'dnsServers',
      ],
      resolve: (options) => resolveEndpointOptions(options).settings,
      words: {
        timeoutMs: { meaning: 'After this long a delivery is aborted and counts as failed.' },
        retry: {
          meaning: 'When a failed delivery is tried again.',
          fallback: '5 s, 5 min, 30 min, then 2, 5, 10, 14, 20 and 24 h',
          allowed: 'a retry policy',
        },
        whenDead: {
          meaning:
            'Behind a dead message, those of its key go on (`continue`), wait for an operator (`block`), or join it (`park`).',
        },
      },
    },
    alertOptions: {
      file: 'relay/alert-options.ts',
      type: 'AlertOptions',
      resolve: resolveAlertOptions,
      words: {
        thresholds: { allowed: 'names of [alerts](alerts.md) and numbers, or `null`' },
        webhook: { allowed: 'an object, see below, or `null`' },
      },
    },
    alertWebhook: {
      file: 'relay/alert-options.ts',
      type: 'AlertWebhookOptions',
      base: { url: 'https://example.com' },
      resolve: (options) => {
        const { timeoutMs } = resolveAlertWebhook(options);
        return { timeoutMs };
      },
      words: {
        url: { fallback: 'required' },
        secrets: { allowed: 'one secret, or a list of 1 to 10' },
        headers: { allowed: 'an object of texts' },
      },
    },
    relay: { file: 'relay/options.ts', type: 'RelayOptions', resolve: resolveRelayOptions },
    subscribe: {
      file: 'subscribe.ts',
      type: 'SubscribeOptions',
      base: { name: 'a' },
      resolve: resolveSubscribeOptions,
      words: {
        name: { fallback: 'required' },
        database: { meaning: 'Where PostgreSQL is.', allowed: 'as in the configuration file' },
        topics: { allowed: 'a list of 1 to 1,000 topics' },
        retry: {
          meaning: 'When a message that failed is tried again.',
          allowed: 'a retry policy',
        },
        onEvent: {
          meaning: 'Called with what happens.',
          allowed: 'a function; the events are in `docs/operations.md`',
        },
      },
    },
    retention: { file: 'database/maintenance.ts', type: 'Retention', resolve: resolveRetention },
    audit: {
      file: 'model/audit-options.ts',
      type: 'AuditOptions',
      base: { seal: true },
      resolve: resolveAuditOptions,
      words: {
        seal: { fallback: '`false`' },
        heads: { fallback: 'into the log', allowed: 'see below' },
      },
    },
    auditHeads: {
      file: 'model/audit-options.ts',
      type: 'HeadOptions',
      resolve: (heads) => resolveAuditOptions({ seal: true, heads }).heads,
      words: {
        file: { fallback: 'none', allowed: 'the path of a file' },
        webhook: { fallback: 'none', allowed: 'an http:// or https:// address' },
        headers: { fallback: 'none', allowed: 'an object of texts, with `webhook`' },
      },
    },
  };
}

/** What every destination has: shown once. */
const settingNames = [
  'concurrency',
  'timeoutMs',
  'mode',
  'from',
  'retry',
  'whenDead',
  'fairness',
  'guard',
  'classify',
  'rate',
  'breaker',
];

const messageWords = {
  topic: {
    fallback: 'required',
    allowed: 'words of letters, digits, `_` and `-`, joined by `.` `:` or `/`; at most 255 bytes',
  },
  payload: {
    fallback: 'null',
    allowed:
      'JSON: no NUL, no half surrogate pair, no `NaN`, no `BigInt`; at most 200 levels and `maxPayloadBytes`',
  },
  payloadText: {
    allowed: 'JSON text whose numbers are in the range of `numeric`, not together with `payload`',
  },
  namespace: { allowed: 'as for the topic' },
  tenantId: {
    meaning: 'Whose message it is; claims and relays can be limited by it.',
    allowed: '1 to 255 bytes, compared exactly',
  },
  key: {
    meaning: 'The ordering key: messages of one key are delivered in sequence.',
    allowed: '1 to 512 bytes',
  },
  dedupeKey: {
    meaning: 'At most one message per namespace, topic and dedupe key.',
    allowed: '1 to 1024 bytes; with a tenant it begins with `tenantId/`',
  },
  aggregateType: {
    meaning: 'What kind of thing it is about.',
    allowed: '1 to 255 bytes, together with `aggregateId`',
  },
  aggregateId: { meaning: 'Which one.', allowed: '1 to 255 bytes, together with `aggregateType`' },
  headers: { meaning: 'Anything beside the payload.', allowed: 'an object of texts' },
  delayMs: { allowed: '0 to ten years, not together with `availableAt`' },
  availableAt: { allowed: 'a `Date` or an ISO 8601 text' },
};

/** One markdown table per section. @returns {Promise<Record<string, string>>} */
export async function optionTables() {
  // what is configured on this machine is no default
  for (const name of ['DATABASE_URL', 'DATABASE_DIRECT_URL', 'DATABASE_REPLICA_URL'])
    delete process.env[name];
  const sections = await loadSections();
  return Object.fromEntries(
    Object.entries(sections).map(([name, section]) => [name, optionTable(name, section)]),
  );
}

/** @param {string} name @param {Section} section */
function optionTable(name, section) {
  const comments = section.type ? readComments(section.file, section.type) : new Map();
  const keys = [...knownKeys(section), ...(section.also ?? [])].filter(
    (key) => !section.without?.includes(key),
  );
  const rows = keys.map((key) => {
    const { meaning, fallback } = splitDefault(comments.get(key) ?? '');
    const words = section.words?.[key] ?? {};
    const text = words.meaning ?? meaning;
    if (text === '')
      throw new Error(`${name}.${key} has no comment in src/${section.file}, and no words here`);
    const value = defaultOf(section, key);
    if (
      fallback !== undefined &&
      typeof value === 'number' &&
      plain(fallback) !== String(value) &&
      !/MiB|host/.test(fallback)
    )
      throw new Error(
        `the comment on ${name}.${key} says ${fallback}, but the default is ${value}`,
      );
    const shownDefault =
      words.fallback ?? (value === undefined ? (fallback ?? '–') : formatted(value));
    return `| \`${key}\` | ${text} | ${shownDefault} | ${words.allowed ?? allowedOf(section, key)} |`;
  });
  return ['| option | meaning | default | allowed |', '|---|---|---|---|', ...rows].join('\n');
}

/** @param {Section} section */
function knownKeys(section) {
  const refusal = refusalOf(() => section.resolve({ ...section.base, noSuchOption: 1 }));
  const list = /: use (.*)$/.exec(refusal ?? '')?.[1];
  if (list === undefined)
    throw new Error(`src/${section.file} does not list its options: ${refusal}`);
  return list.split(', ');
}

/** @param {Section} section @param {string} key */
function defaultOf(section, key) {
  const resolved = /** @type {Record<string, unknown>} */ (section.resolve({ ...section.base }));
  const value = resolved[key];
  return typeof value === 'object' && value !== null ? undefined : value;
}

/** What the refusal of nonsense says after "give". @param {Section} section @param {string} key */
function allowedOf(section, key) {
  const refusal = refusalOf(() => section.resolve({ ...section.base, [key]: {} }));
  const allowed = /: give (.*)$/.exec(refusal ?? '')?.[1];
  if (allowed === undefined)
    throw new Error(`${key} of src/${section.file} does not say what is allowed: ${refusal}`);
  const range = allowed
    .replace(
      /^a whole number from (\d+) to (\d+)$/,
      (_, from, to) => `${thousands(from)} to ${thousands(to)}`,
    )
    .replaceAll('|', '\\|');
  return isNullable(section, key) ? `${range}, or \`null\`` : range;
}

/** @param {Section} section @param {string} key */
function isNullable(section, key) {
  try {
    const resolved = /** @type {Record<string, unknown>} */ (
      section.resolve({ ...section.base, [key]: null })
    );
    return key in resolved && resolved[key] === null;
  } catch {
    return false;
  }
}

/** @param {() => unknown} work */
function refusalOf(work) {
  try {
    work();
    return undefined;
  } catch (error) {
    return /** @type {Error} */ (error).message;
  }
}

/** The comment above each property of a type. @param {string} file @param {string} type @returns {Map<string, string>} */
function readComments(file, type) {
  const source = readFileSync(new URL(`../src/${file}`, import.meta.url), 'utf8');
  const start = source.indexOf(`export type ${type} =`);
  if (start < 0) throw new Error(`src/${file} has no type ${type}`);
  const body = source.slice(start, source.indexOf('\n\n', start));
  const property = /\/\*\* (.*?) \*\/\s+(\w+)\??:/g;
  return new Map([...body.matchAll(property)].map(([, text, key]) => [key, text]));
}

/** "How long … Default 30,000." → the meaning and the default. @param {string} comment */
function splitDefault(comment) {
  const found = /^(.*?)\s*Default:? (.*?)\.$/.exec(comment);
  if (found === null) return { meaning: comment.replaceAll('|', '\\|'), fallback: undefined };
  return { meaning: found[1], fallback: found[2] };
}

/** @param {string} text */
function plain(text) {
  return text.replaceAll(/[,`]/g, '');
}

/** @param {unknown} value */
function formatted(value) {
  return typeof value === 'number' ? thousands(String(value)) : `\`${String(value)}\``;
}

/** @param {string} digits */
function thousands(digits) {
  return digits.replaceAll(/\B(?=(\d{3})+$)/g, ',');
}
