// The sections of options other than those of destinations and features: messages, connections, routes and relays.

/** @typedef {import('./docs-options.mjs').Section} Section */
/** @typedef {import('./docs-options.mjs').Load} Load */

/** @param {Load} load @returns {Promise<Record<string, Section>>} */
export async function generalSections(load) {
  const { createOutbox } = await load('producer/outbox');
  const { createInbox } = await load('consumer/inbox');
  const { serializeMessage, defaultLimits } = await load('core/message');
  const { resolveDatabaseOptions } = await load('database/connection');
  const { checkRoutes } = await load('core/route');
  const { featureRoutes } = await load('features/in-relay');
  const { resolveRelayOptions } = await load('relay/options');
  const { resolveSleepOptions } = await load('relay/sleep/options');
  const { wakeKind } = await load('producer/nudge');
  const { resolveServerOptions } = await load('server/options');
  const { resolvePortalOptions } = await load('server/portal-options');
  const { resolveSingleSignOn } = await load('server/single-sign-on');
  const { resolveRetention } = await load('relay/upkeep/retention');
  const { resolveSubscribeOptions } = await load('consumer/subscribe');
  return {
    message: {
      file: 'core/message.ts',
      type: 'Message',
      base: { topic: 'a' },
      resolve: (message) => {
        serializeMessage(message, defaultLimits);
        return {};
      },
      words: messageWords,
    },
    outbox: {
      file: 'producer/outbox.ts',
      type: 'OutboxOptions',
      resolve: (options) => {
        createOutbox(options);
        return defaultLimits;
      },
      words: {
        schema: { meaning: 'The schema of the outbox.' },
        events: {
          allowed: 'what `defineEvents` gives, see [typed events](../guides/typed-events.md)',
        },
        shard: { allowed: '`{ of, name }`, see [shards](../guides/shards.md)' },
        wake: { allowed: '`{ url, token, timeoutMs }`, see below' },
      },
    },
    wake: {
      file: 'producer/nudge.ts',
      type: 'WakeOptions',
      resolve: (options) => wakeKind('wake', options),
    },
    inbox: {
      file: 'consumer/inbox.ts',
      type: 'InboxOptions',
      resolve: (options) => {
        createInbox(options);
        return {};
      },
      words: { schema: { meaning: 'The schema of the outbox.' } },
    },
    database: {
      file: 'database/connection.ts',
      type: 'DatabaseOptions',
      resolve: resolveDatabaseOptions,
      words: {
        url: { meaning: 'The address of the database.' },
        schema: { meaning: 'The schema of the outbox.' },
        statementTimeoutMs: { meaning: 'The longest time that a statement of Waybill may run.' },
        lockTimeoutMs: {
          meaning: 'The longest time that a statement of Waybill waits for a lock.',
        },
        idleInTransactionTimeoutMs: {
          meaning: 'The server ends a session that is idle in a transaction for longer.',
        },
        connectTimeoutMs: { meaning: 'How long a new connection may take.' },
      },
    },
    routes: {
      file: 'core/route.ts',
      type: 'Route',
      base: { topic: '*', to: 'crm' },
      resolve: (route) => {
        checkRoutes([route], new Set(['crm']), featureRoutes);
        return {};
      },
      words: { topic: { fallback: 'required' }, to: { fallback: 'required' } },
    },
    relay: {
      file: 'relay/options.ts',
      type: 'RelayOptions',
      resolve: resolveRelayOptions,
      words: { sleep: { allowed: '`{ afterMs, lookEveryMs }`, see below' } },
    },
    sleep: {
      file: 'relay/sleep/options.ts',
      type: 'SleepOptions',
      resolve: resolveSleepOptions,
    },
    server: {
      file: 'server/options.ts',
      type: 'ServerOptions',
      resolve: resolveServerOptions,
      words: {
        embeddedBy: { allowed: 'a list of 1 to 20 origins, such as https://www.example.com' },
        singleSignOn: { allowed: 'an object, see [below](#serversinglesignon)' },
        searchablePayloadFields: {
          allowed: 'a list of 1 to 20 fields, each of 1 to 10 names joined by dots',
        },
        portal: { allowed: 'an object, see [below](#serverportal)' },
      },
    },
    singleSignOn: {
      file: 'server/single-sign-on.ts',
      type: 'SingleSignOnOptions',
      base: { proxies: ['10.0.0.7'], scopes: { '*': 'read' } },
      resolve: resolveSingleSignOn,
      words: {
        proxies: { allowed: 'a list of 1 to 100 addresses or networks' },
        userHeader: { allowed: 'the name of a header' },
        groupsHeader: { allowed: 'the name of a header' },
        scopes: { allowed: '`read`, `operate` or `admin` for each group' },
      },
    },
    portal: {
      file: 'server/portal-options.ts',
      type: 'PortalOptions',
      resolve: resolvePortalOptions,
      words: {
        colours: { allowed: '`{ light, dark }`, each a theme, see below' },
        embeddedBy: { allowed: 'a list of 1 to 20 origins, such as https://www.example.com' },
      },
    },
    subscribe: {
      file: 'consumer/subscribe.ts',
      type: 'SubscribeOptions',
      base: { name: 'a' },
      resolve: resolveSubscribeOptions,
      words: {
        name: { fallback: 'required' },
        database: {
          meaning: 'The connection to the database.',
          allowed: 'as in the configuration file',
        },
        topics: { allowed: 'a list of 1 to 1,000 topics' },
        retry: {
          meaning: 'When a failed message is tried again.',
          allowed: 'a retry policy',
        },
        onEvent: {
          meaning: 'Called with each event.',
          allowed: 'a function; the events are in `docs/operate/logs-and-events.md`',
        },
      },
    },
    retention: {
      file: 'relay/upkeep/retention.ts',
      type: 'Retention',
      resolve: resolveRetention,
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
    meaning:
      'The customer that the message belongs to. An endpoint of a tenant gets only messages of that tenant; claims and relays can be limited to tenants.',
    allowed: '1 to 255 bytes, compared exactly',
  },
  key: {
    meaning: 'The ordering key: messages of one key are delivered in sequence.',
    allowed: '1 to 512 bytes',
  },
  dedupeKey: {
    meaning: 'At most one message per namespace, tenant, topic and dedupe key.',
    allowed: '1 to 1024 bytes; with a tenant it begins with `tenantId/`',
  },
  aggregateType: {
    meaning: 'The kind of entity that the message is about.',
    allowed: '1 to 255 bytes, together with `aggregateId`',
  },
  aggregateId: {
    meaning: 'The id of that entity.',
    allowed: '1 to 255 bytes, together with `aggregateType`',
  },
  headers: { meaning: 'Additional data beside the payload.', allowed: 'an object of texts' },
  delayMs: { allowed: '0 to ten years, not together with `availableAt`' },
  availableAt: { allowed: 'a `Date` or an ISO 8601 text' },
};
