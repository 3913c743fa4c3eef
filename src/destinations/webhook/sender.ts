// Sender of a webhook: one signed request per message, over the connections of a pool. The receiver's answer decides the
// outcome.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { scheduledMs } from '../../core/retry-policy.js';
import { version } from '../../core/version.js';
import type { SingleDestination } from '../destination.js';
import type { AnswerRules } from './answer.js';
import { contentOf, headerValue, traceHeaders } from './body.js';
import type { Content } from './body.js';
import { canConnect } from './connector.js';
import { Exchange } from './exchange.js';
import { responseKeeper } from './kept-response.js';
import type { CheckedWebhook } from './options.js';
import { openPool } from './pool.js';
import type { OpenPool, PoolOpener } from './pool.js';
import { signatures } from './signature.js';
import type { Secret } from './signature.js';
import { refuseTarget } from './url.js';

/** A webhook of checked options. Endpoints use it, because thousands of them share most options, and connections. */
export function webhookOf(
  checked: CheckedWebhook,
  { openPool: opener, connections }: { openPool: PoolOpener; connections: number | null } = {
    openPool,
    connections: checked.concurrency,
  },
): SingleDestination {
  const { url, secrets, headers: added, body, source, method, ...others } = checked;
  const { successCodes, terminalCodes, maxRetryAfterMs, keepResponses, ...rest } = others;
  const { allowedNetworks: allowed, dnsServers: servers, ...settings } = rest;
  refuseTarget(url, allowed);
  const rules: AnswerRules = {
    successCodes,
    terminalCodes: terminalCodes ?? [],
    maxRetryAfterMs,
    keepResponses,
    keeper: responseKeeper(
      secrets.map((secret) => secret.text),
      added,
      url,
    ),
  };
  const path = `${url.pathname}${url.search}`;
  const fixed = fixedHeaders(added);
  let opened: OpenPool | undefined;
  const open = (): OpenPool => {
    if (opened === undefined) throw new Error('the webhook destination is not open');
    return opened;
  };
  return {
    kind: 'webhook',
    settings,
    async open(relays = 1) {
      opened = await opener(url.origin, {
        allowedNetworks: allowed,
        dnsServers: servers,
        timeoutMs: settings.timeoutMs,
        connections: connections === null ? null : connections * relays,
      });
    },
    deliver(message, context) {
      const { pool } = open();
      const content = contentOf[body](message, source);
      const headers = standardHeaders(message, secrets, content).concat(
        content.headers,
        traceHeaders(message),
        fixed,
      );
      return new Promise((resolve) => {
        pool.dispatch(
          { method, path, headers, body: content.body },
          new Exchange(rules, () => scheduledMs(settings.retry, message.tries), context, resolve),
        );
      });
    },
    render: (message) => contentOf[body](message, source).body,
    async health({ signal }) {
      const problem = await canConnect(open().connector.connect, url, signal);
      return problem === null ? { ok: true } : { ok: false, problem };
    },
    async close() {
      await opened?.close();
    },
  };
}

/** The id is the same on every retry; the timestamp is that of this try. */
function standardHeaders(
  message: ClaimedMessage,
  secrets: readonly Secret[],
  { body, contentType }: Content,
): string[] {
  const timestamp = String(Math.floor(Date.now() / 1000));
  const headers = [
    'content-type',
    contentType,
    'webhook-id',
    message.id,
    'webhook-timestamp',
    timestamp,
    'webhook-topic',
    headerValue(message.topic),
  ];
  if (secrets.length > 0)
    headers.push('webhook-signature', signatures(secrets, message.id, timestamp, body));
  return headers;
}

function fixedHeaders(headers: Readonly<Record<string, string>>): readonly string[] {
  const names = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  const own = names.has('user-agent') ? [] : ['user-agent', `waybill/${version}`];
  return [...own, ...Object.entries(headers).flat()];
}
