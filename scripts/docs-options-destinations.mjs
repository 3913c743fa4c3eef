// The sections of destinations' options: those that all destinations have, and those of each kind.

/** @typedef {import('./docs-options.mjs').Section} Section */
/** @typedef {import('./docs-options.mjs').Load} Load */

/** @param {Load} load @returns {Promise<Record<string, Section>>} */
export async function destinationSections(load) {
  const { resolveSettings } = await load('destinations/destination');
  const { batchHandler } = await load('destinations/handler');
  const { nats } = await load('destinations/nats/nats');
  const { rabbitmq } = await load('destinations/rabbitmq/rabbitmq');
  const { webhook } = await load('destinations/webhook/webhook');
  const { paymentGuard } = await load('destinations/payment-guard/payment-guard');
  const { rateKind, breakerKind } = await load('core/destination-limits');
  const { resolveKafkaOptions } = await load('destinations/kafka/options');
  const { resolveRetryPolicy } = await load('core/retry-policy');
  return {
    settings: {
      file: 'destinations/destination.ts',
      type: 'DestinationSettings',
      resolve: (options) => resolveSettings('handler', options),
      words: {
        retry: {
          meaning: 'When a failed delivery is tried again.',
          allowed: 'a retry policy, see below',
        },
        classify: {
          allowed: 'codes and `retry`, `reject` or `pause`, see [safety](../guides/safety.md)',
        },
        rate: { allowed: 'a rate limit, see [safety](../guides/safety.md)' },
        breaker: { allowed: 'a breaker, see [safety](../guides/safety.md), or `null`' },
      },
    },
    retry: {
      file: 'core/retry-policy.ts',
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
          meaning: 'An explicit schedule instead: n delays mean one first try and n retries.',
        },
      },
    },
    rate: {
      file: 'core/destination-limits.ts',
      type: 'RateLimit',
      base: { perSecond: 1 },
      resolve: (options) => {
        rateKind('rate', options);
        return {};
      },
      words: { perSecond: { fallback: 'required' } },
    },
    breaker: {
      file: 'core/destination-limits.ts',
      type: 'BreakerOptions',
      resolve: (options) => breakerKind('breaker', options),
    },
    paymentGuard: {
      file: 'destinations/payment-guard/payment-guard.ts',
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
      file: 'destinations/webhook/options.ts',
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
        headers: { allowed: 'an object of at most 20 texts, 8 KiB in all' },
        proxy: { allowed: 'an http:// or https:// address without a path' },
        tls: { allowed: '`{ cert, key, ca, servername }`, all of them texts' },
        auth: {
          allowed:
            "`{ type: 'basic', … }` or `{ type: 'oauth2', … }`, see [below](#authentication)",
        },
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
        concurrency: { meaning: 'Calls in flight at once, per relay.' },
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
  };
}

/** The options of every destination, which are documented once. */
const settingNames = [
  'concurrency',
  'timeoutMs',
  'mode',
  'from',
  'partitions',
  'retry',
  'whenDead',
  'fairness',
  'guard',
  'classify',
  'rate',
  'breaker',
];
