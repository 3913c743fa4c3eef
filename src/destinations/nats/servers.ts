// Addresses of NATS servers. A server sends a greeting to each new connection. A server that does not is skipped here,
// because the library would keep its half-open connection for ever.

import { once } from 'node:events';
import { connect } from 'node:net';

import { errorText } from '../../core/errors.js';
import { list, refuse } from '../../core/options.js';

const address = /^(?:(nats|tls):\/\/)?(\[[0-9a-f:.]+\]|[^\s/:@?#[\]]+)(?::(\d{1,5}))?\/?$/i;
const usualPort = 4222;

/** Option kind: one address, or a list. */
export function serverAddresses(name: string, value: unknown): readonly string[] {
  const one = (each: string, given: unknown): string =>
    typeof given === 'string' && address.test(given)
      ? given
      : // an invalid value is not shown: it may contain a secret
        refuse(each, '…', 'give an address such as nats://host:4222, without user and password');
  return Array.isArray(value) ? list(one, { min: 1, max: 100 })(name, value) : [one(name, value)];
}

/** `tls://` requires TLS, whatever the options say. */
export function wantsTls(server: string): boolean {
  return address.exec(server)?.[1]?.toLowerCase() === 'tls';
}

/** Returns the first server that sends a greeting; throws the error of the last one if none does. */
export async function firstThatGreets(
  servers: readonly string[],
  timeoutMs: number,
  closing: AbortSignal,
): Promise<string> {
  let failure: unknown;
  for (const server of servers) {
    try {
      await greeting(server, timeoutMs, closing);
      return server;
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

async function greeting(server: string, timeoutMs: number, closing: AbortSignal): Promise<void> {
  const [, , host = '', port] = address.exec(server) ?? [];
  const silent = AbortSignal.timeout(timeoutMs);
  const socket = connect({
    host: host.replace(/^\[|\]$/g, ''),
    port: port === undefined ? usualPort : Number(port),
    signal: AbortSignal.any([silent, closing]),
  });
  // a server that closes the connection without a greeting is skipped too
  socket.once('end', () => socket.destroy(new Error(`${server} hung up`)));
  try {
    await once(socket, 'data');
  } catch (error) {
    if (!silent.aborted) throw error;
    const message = `${server} says nothing: ${errorText(error)}`;
    throw Object.assign(new Error(message), { code: 'ETIMEDOUT' });
  } finally {
    socket.destroy();
  }
}
