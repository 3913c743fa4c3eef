// Authentication at a receiver: basic authentication, or OAuth 2 with client credentials. It is checked when the webhook
// is made. No error shows a user, a password or a client's secret.

import { checkOptions, choice, optional, refuse } from '../../core/options.js';
import { webhookUrl } from './url.js';

export type BasicAuth = {
  type: 'basic';
  user: string;
  password: string;
};

export type OAuth2 = {
  type: 'oauth2';
  /** The token endpoint of the authorization server. */
  tokenUrl: string;
  clientId: string;
  clientSecret: string;
  /** The scopes of the access token, separated by spaces. Default: the server's. */
  scope?: string;
  /** The audience of the access token, which some servers require. Default: none. */
  audience?: string;
  /** Where the token request has the client's id and secret: in a header (basic authentication), or in its body. Default `header`. */
  sendClientIn?: 'header' | 'body';
};

export type WebhookAuth = BasicAuth | OAuth2;

export type CheckedAuth =
  | { readonly type: 'basic'; readonly header: string }
  | {
      readonly type: 'oauth2';
      readonly tokenUrl: URL;
      /** The header of the token request, and its body. */
      readonly header: string | undefined;
      readonly body: string;
      readonly clientSecret: string;
    };

const longest = 1024;
const visible = /^[\u0020-\u007e]+$/;

/** Option kind: how requests are authenticated. */
export function webhookAuth(name: string, value: unknown): CheckedAuth | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return refuse(name, '…', "give an object with the type 'basic' or 'oauth2'");
  const { type } = value as { type?: unknown };
  if (type === 'basic') return checkBasic(name, value);
  if (type === 'oauth2') return checkOAuth2(name, value);
  return refuse(`${name}.type`, typeof type === 'string' ? type : '…', "give 'basic' or 'oauth2'");
}

function checkBasic(name: string, value: object): CheckedAuth {
  const { user, password } = checkOptions(name, value, {
    type: choice('basic'),
    user: part((text) => !text.includes(':'), 'without a colon'),
    password: part(() => true, ''),
  });
  return { type: 'basic', header: basicHeader(user, password) };
}

function checkOAuth2(name: string, value: object): CheckedAuth {
  const plain = part((text) => visible.test(text), 'of printable ASCII characters');
  const checked = checkOptions(name, value, {
    type: choice('oauth2'),
    tokenUrl: webhookUrl,
    clientId: plain,
    clientSecret: plain,
    scope: optional(plain),
    audience: optional(plain),
    sendClientIn: choice('header', 'body'),
  });
  const { tokenUrl, clientId, clientSecret, scope, audience, sendClientIn } = checked;
  const isInBody = sendClientIn === 'body';
  const body = new URLSearchParams({
    grant_type: 'client_credentials',
    ...(scope !== undefined && { scope }),
    ...(audience !== undefined && { audience }),
    ...(isInBody && { client_id: clientId, client_secret: clientSecret }),
  }).toString();
  // encoded twice, as RFC 6749 demands in section 2.3.1
  const header = isInBody ? undefined : basicHeader(encoded(clientId), encoded(clientSecret));
  return { type: 'oauth2', tokenUrl, header, body, clientSecret };
}

function part(isSound: (text: string) => boolean, rule: string) {
  return (name: string, value: unknown): string => {
    const text = typeof value === 'string' ? value : '';
    // oxlint-disable-next-line no-control-regex -- control characters are refused
    const isText = text !== '' && text.length <= longest && !/[\u0000-\u001f\u007f]/.test(text);
    if (isText && text.isWellFormed() && isSound(text)) return text;
    const remedy = `give text of 1 to ${longest} characters ${rule}`.trimEnd();
    return refuse(name, value === undefined || value === '' ? value : '…', remedy);
  };
}

function basicHeader(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
}

function encoded(text: string): string {
  return new URLSearchParams({ a: text }).toString().slice(2);
}
