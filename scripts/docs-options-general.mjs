// Where the tables of all options but those of destinations come from: messages, connections, routes, relays and what
// relays do.

/** @typedef {import('./docs-options.mjs').Section} Section */
/** @typedef {import('./docs-options.mjs').Load} Load */

/** @param {Load} load @returns {Promise<Record<string, Section>>} */
export async function generalSections(load) {
  const { createOutbox } = await load('outbox.ts');
  const { createInbox } = await load('inbox.ts');
  const { serializeMessage, defaultMaxPayloadBytes } = await load('model/message.ts');
  const { resolveDatabaseOptions } = await load('database/connection.ts');
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
