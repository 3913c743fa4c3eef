// Sender of a webhook: one signed request per message, over the connections of a pool. The receiver's answer decides the
// outcome.

import { scheduledMs } from '../../core/retry-policy.js';
import type { SingleDestination } from '../destination.js';
import { TokenSource, requestToken } from './access-token.js';
import { failureOf } from './answer.js';
import type { AnswerRules } from './answer.js';
import { authorizedDelivery } from './authorized-delivery.js';
import type { Send } from './authorized-delivery.js';
import { contentOf, traceHeaders } from './body.js';
import { canConnect } from './connector.js';
import { Exchange } from './exchange.js';
import { responseKeeper } from './kept-response.js';
import type { CheckedWebhook } from './options.js';
import { openPool } from './pool.js';
import type { OpenPool, PoolOpener } from './pool.js';
import { fixedHeaders, standardHeaders } from './request-headers.js';
import { requestOf } from './sent-request.js';
import { shownUrl } from '../shown-address.js';
import { refuseTarget } from './url.js';

/** What webhooks can share, because thousands of them have most options in common. */
export type SharedParts = {
  readonly openPool: PoolOpener;
  /** At most this many connections; null: as many as there are calls at once. */
  readonly connections: number | null;
  /** The source of the access tokens of an OAuth 2 client. */
  readonly tokens?: TokenSource;
};

/** A webhook of checked options. Endpoints use it, and share connections and access tokens. */
export function webhookOf(
  checked: CheckedWebhook,
  { openPool: opener, connections, tokens = new TokenSource() }: SharedParts = {
    openPool,
    connections: checked.concurrency,
  },
): SingleDestination {
  const { url, secrets, headers: given, body, source, method, auth, ...others } = checked;
  const { successCodes, terminalCodes, maxRetryAfterMs, keepResponses, ...rest } = others;
  const { allowedNetworks: allowed, dnsServers: servers, proxy, tls, ...settings } = rest;
  refuseTarget(url, allowed);
  if (auth?.type === 'oauth2') refuseTarget(auth.tokenUrl, allowed, 'webhook.auth.tokenUrl');
  const path = `${url.pathname}${url.search}`;
  const added = withoutAuthorization(given);
  let opened: OpenPool | undefined;
  const open = (): OpenPool => {
    if (opened === undefined) throw new Error('the webhook destination is not open');
    return opened;
  };
  const poolOptions = {
    allowedNetworks: allowed,
    dnsServers: servers,
    timeoutMs: settings.timeoutMs,
    proxy,
    tls,
  };
  // the name in `servername` is that of the receiver
  const { servername: _name, ...tokenTls } = tls ?? {};
  /** How requests with these headers are sent; `hidden` are more texts that no stored response shows. */
  const sending = (headers: Readonly<Record<string, string>>, hidden = {}): Send => {
    const rules: AnswerRules = {
      successCodes,
      terminalCodes: terminalCodes ?? [],
      maxRetryAfterMs,
      keepResponses,
      keeper: responseKeeper(
        secrets.map((secret) => secret.text),
        { ...headers, ...hidden },
        url,
      ),
    };
    const fixed = fixedHeaders(headers);
    return (message, context) => {
      const { pool } = open();
      const content = contentOf[body](message, source);
      const all = standardHeaders(message, secrets, content).concat(
        content.headers,
        traceHeaders(message),
        fixed,
      );
      return new Promise((resolve) => {
        pool.dispatch(
          { method, path, headers: all, body: content.body },
          new Exchange(rules, () => scheduledMs(settings.retry, message.tries), context, resolve),
        );
      });
    };
  };
  const send =
    auth?.type === 'oauth2'
      ? authorizedDelivery({
          tokens,
          ask: () =>
            requestToken(
              auth,
              (origin) => opener(origin, { ...poolOptions, tls: tokenTls, connections }),
              settings.timeoutMs,
            ),
          sending: (authorization) =>
            sending({ ...added, authorization }, { clientSecret: auth.clientSecret }),
          failureOf,
        })
      : sending(auth === undefined ? given : { ...added, authorization: auth.header });
  return {
    kind: 'webhook',
    settings,
    async open(relays = 1) {
      opened = await opener(url.origin, {
        ...poolOptions,
        connections: connections === null ? null : connections * relays,
      });
    },
    deliver: send,
    render: (message) => contentOf[body](message, source).body,
    request(message, sentAt) {
      const names = Object.keys(auth === undefined ? given : { authorization: '', ...added });
      return requestOf(message, sentAt, {
        method,
        url: shownUrl(url, true),
        shape: body,
        source,
        secrets: secrets.length,
        added: names,
      });
    },
    async health({ signal }) {
      const problem = await canConnect(open().connector.connect, url, signal);
      return problem === null ? { ok: true } : { ok: false, problem };
    },
    async close() {
      await opened?.close();
    },
  };
}

function withoutAuthorization(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => name.toLowerCase() !== 'authorization'),
  );
}
