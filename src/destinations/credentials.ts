// Options that hold secrets. What was given is never shown, not even in the error that refuses it.

import { checkOptions, optional, refuse } from '../model/options.js';

export type TlsOptions = {
  /** The authorities that are trusted, instead of the system's, as PEM text. */
  ca?: string;
  /** The client's own certificate and its key, as PEM text. */
  cert?: string;
  key?: string;
  /** The name that the certificate of the other side must have. */
  servername?: string;
};

export function secret(name: string, value: unknown): string {
  return typeof value === 'string' && value !== ''
    ? value
    : refuse(name, hidden(value), 'give text that is not empty');
}

/** A kind of option: a secret that looks like one, so that a wrong one is found before anything starts. */
export function secretLike(pattern: RegExp, meaning: string) {
  return (name: string, value: unknown): string => {
    const text = typeof value === 'string' ? value.replaceAll('\r\n', '\n') : '';
    return pattern.test(text) ? text : refuse(name, hidden(value), `give ${meaning}`);
  };
}

/** Nothing, `true` for the system's authorities, or whom to trust and who to be. */
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
