// Options that hold secrets. Their values are never shown, not even in the error that refuses them.

import { checkOptions, optional, refuse } from '../core/options.js';

export type TlsOptions = {
  /** Trusted certificate authorities as PEM text, instead of those of the system. */
  ca?: string;
  /** The client's certificate and its key, as PEM text. */
  cert?: string;
  key?: string;
  /** The name that the server's certificate must have. */
  servername?: string;
};

export function secret(name: string, value: unknown): string {
  return typeof value === 'string' && value !== ''
    ? value
    : refuse(name, hidden(value), 'give text that is not empty');
}

/** Option kind: a secret that must match a pattern, so that a wrong one is found before anything starts. */
export function secretLike(pattern: RegExp, meaning: string) {
  return (name: string, value: unknown): string => {
    const text = typeof value === 'string' ? value.replaceAll('\r\n', '\n') : '';
    return pattern.test(text) ? text : refuse(name, hidden(value), `give ${meaning}`);
  };
}

/** Option kind: nothing, `true` for the authorities of the system, or TLS options. */
export function tlsOptions(name: string, value: unknown): TlsOptions | undefined {
  if (value === undefined || value === false) return undefined;
  if (value === true) return {};
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return refuse(name, hidden(value), 'give true, or an object with ca, cert, key or servername');
  const pem = optional(secret);
  const given = checkOptions(name, value, { ca: pem, cert: pem, key: pem, servername: pem });
  if ((given.cert === undefined) !== (given.key === undefined))
    refuse(`${name}.cert`, '…', 'give cert and key together, or neither');
  return Object.fromEntries(Object.entries(given).filter(([, text]) => text !== undefined));
}

function hidden(value: unknown): unknown {
  return value === undefined || value === '' ? value : '…';
}
