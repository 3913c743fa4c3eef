// Delivery with an access token of OAuth 2. After a 401 the request is repeated once with a new token, in the same
// delivery: the token may have been revoked before its end.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import type { Outcome } from '../../core/outcome.js';
import type { DeliveryContext } from '../destination.js';
import type { AccessToken, AskForToken, TokenSource } from './access-token.js';

export type Send = (message: ClaimedMessage, context: DeliveryContext) => Promise<Outcome>;

type Parts = {
  readonly tokens: TokenSource;
  readonly ask: AskForToken;
  /** How requests with this header are sent. */
  readonly sending: (authorization: string) => Send;
  readonly failureOf: (error: Error) => Outcome;
};

export function authorizedDelivery({ tokens, ask, sending, failureOf }: Parts): Send {
  /** Sends requests with the last token. It is kept, because making it costs more than a request. */
  let last: { readonly text: string; readonly send: Send } | undefined;
  const sendWith = ({ text }: AccessToken): Send => {
    if (last?.text !== text) last = { text, send: sending(`Bearer ${text}`) };
    return last.send;
  };
  return async (message, context) => {
    try {
      const found = tokens.get(ask);
      const token = found instanceof Promise ? await unlessAborted(found, context) : found;
      const outcome = await sendWith(token)(message, context);
      if (!isUnauthorized(outcome) || context.signal.aborted) return outcome;
      const other = await unlessAborted(tokens.after(token, ask), context).catch(() => null);
      if (other === null) return outcome;
      const second = await sendWith(other)(message, context);
      if (isUnauthorized(second)) tokens.wasUseless();
      return second;
    } catch (error) {
      return failureOf(error as Error);
    }
  };
}

function isUnauthorized(outcome: Outcome): boolean {
  return outcome.kind !== 'delivered' && 'remoteCode' in outcome && outcome.remoteCode === '401';
}

/** Ends the wait of this call if it is aborted; the token request goes on for other calls. */
function unlessAborted<T>(work: Promise<T>, { signal }: DeliveryContext): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
