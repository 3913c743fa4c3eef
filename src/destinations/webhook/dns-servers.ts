// The option `dnsServers`: name servers to use instead of the system's.

import { promises as dns } from 'node:dns';

import { refuse } from '../../core/options.js';

/** Option kind: name servers, each an address with or without a port. */
export function dnsServers(name: string, value: unknown): readonly string[] | undefined {
  if (value === undefined) return undefined;
  const meaning = "give a list of 1 to 10 addresses, such as ['1.1.1.1', '127.0.0.1:5353']";
  if (!Array.isArray(value) || value.length < 1 || value.length > 10)
    return refuse(name, value, meaning);
  try {
    new dns.Resolver().setServers(value as string[]);
  } catch {
    return refuse(name, value, meaning);
  }
  // the resolver accepts these addresses, but gets no answer from them
  if (
    value.some((server) => Number(/^(?:[\d.]+|\[.*\]):(\d+)$/.exec(server as string)?.[1]) > 65_535)
  )
    return refuse(name, value, meaning);
  return value as string[];
}
