// TLS options of webhooks: a client certificate for receivers that demand one (mutual TLS), and trusted authorities.
// They are tried when the webhook is made, so that a wrong key is found before anything is sent. No error shows them.

import { createSecureContext } from 'node:tls';

import { refuse } from '../../core/options.js';
import { tlsOptions } from '../credentials.js';
import type { TlsOptions } from '../credentials.js';

const meanings = {
  ca: 'give certificates of authorities as PEM text',
  cert: 'give a certificate as PEM text, its own first and then those that signed it',
  key: 'give the private key of cert as PEM text, without a passphrase',
};

/** Option kind: TLS options that can be used. */
export function webhookTls(name: string, value: unknown): TlsOptions | undefined {
  const options = tlsOptions(name, value);
  if (options === undefined) return undefined;
  const { ca, cert, key } = options;
  tryOut(`${name}.ca`, { ca }, meanings.ca);
  tryOut(`${name}.cert`, { cert }, meanings.cert);
  tryOut(`${name}.key`, { cert, key }, meanings.key);
  return options;
}

function tryOut(name: string, given: TlsTexts, meaning: string): void {
  // an authority that is no certificate is ignored by OpenSSL
  const isText = Object.values(given).every((text) => text?.includes('-----BEGIN ') ?? true);
  try {
    if (isText)
      return void createSecureContext(
        Object.fromEntries(Object.entries(given).filter(([, text]) => text !== undefined)),
      );
  } catch {
    // OpenSSL's own words say less than the meaning
  }
  refuse(name, '…', meaning);
}

type TlsTexts = Record<string, string | undefined>;
