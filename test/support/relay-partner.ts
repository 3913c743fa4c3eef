// The receiving side of a delivery, controlled by the test: it accepts, refuses or holds calls, and notices when a call
// is given up. For a function it is called directly; for a webhook it is a real server. So one contract is tested for
// every kind of destination.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

import { onTestFinished } from 'vitest';

import type { Destination, DestinationSettings } from '../../src/destinations/destination.js';
import { batchHandler, handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { delivered } from '../../src/core/outcome.js';

export class Partner {
  behaviour: 'accept' | 'hold' | 'fail' = 'accept';
  /** Message ids in order of arrival; a repeated delivery repeats its id. */
  readonly arrived: string[] = [];
  /** Calls that were given up while they were held. */
  cut = 0;
  readonly #held = new Set<() => void>();

  get holding(): number {
    return this.#held.size;
  }

  letGo(): void {
    for (const go of this.#held) go();
  }

  /** Resolves with whether the delivery is accepted; never resolves when the call is given up. */
  async receive(ids: readonly string[], onCut: (cut: () => void) => void): Promise<boolean> {
    this.arrived.push(...ids);
    if (this.behaviour !== 'hold') return this.behaviour === 'accept';
    return new Promise<boolean>((resolve) => {
      const go = () => {
        this.#held.delete(go);
        resolve(true);
      };
      this.#held.add(go);
      onCut(() => {
        if (this.#held.delete(go)) this.cut += 1;
      });
    });
  }
}

export type Subject = {
  kind: string;
  /** The code with which a refusal of the partner is recorded. */
  refusedAs: string;
  make: (partner: Partner, settings: DestinationSettings) => Promise<Destination>;
  /** Source text of such a destination for a script; `url` is a server that accepts everything. */
  source: string;
};

async function ask(partner: Partner, ids: readonly string[], signal: AbortSignal): Promise<void> {
  const given = partner.receive(ids, (cut) => signal.addEventListener('abort', cut));
  const accepted = await Promise.race([
    given,
    new Promise<never>((_resolve, refuse) => {
      signal.addEventListener('abort', () => refuse(signal.reason as Error));
    }),
  ]);
  if (!accepted) throw new Error('refused');
}

export const subjects: Subject[] = [
  {
    kind: 'handler',
    refusedAs: 'thrown',
    make: (partner, settings) =>
      Promise.resolve(
        handler((message, { signal }) => ask(partner, [message.id], signal), settings),
      ),
    source: 'handler(async (message, { signal }) => void signal.aborted)',
  },
  {
    kind: 'batchHandler',
    refusedAs: 'thrown',
    make: (partner, settings) =>
      Promise.resolve(
        batchHandler(
          async (messages, { signal }) => {
            await ask(
              partner,
              messages.map((message) => message.id),
              signal,
            );
            return messages.map(() => delivered());
          },
          { ...settings, batchSize: 10 },
        ),
      ),
    source: 'batchHandler(async (messages, { signal }) => void signal.aborted)',
  },
  {
    kind: 'webhook',
    refusedAs: 'http_status',
    make: async (partner, settings) => {
      const { url } = await serve((request, response) => {
        request.resume();
        void partner
          .receive([String(request.headers['webhook-id'])], (cut) => response.on('close', cut))
          .then((accepted) => response.writeHead(accepted ? 204 : 503).end());
      });
      return webhook({ url, allowedNetworks: loopback, ...settings });
    },
    source: "webhook({ url, allowedNetworks: ['127.0.0.0/8'] })",
  },
];

/** Webhooks must be allowed to reach this machine, where the servers of the tests run. */
export const loopback = ['127.0.0.0/8'];

export type TestServer = { readonly url: string; readonly port: number; stop(): Promise<void> };

/** A real server on a free port or on the given one; closed when the test ends. */
export async function serve(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
  port = 0,
): Promise<TestServer> {
  const server = createServer(answer).listen(port, '127.0.0.1');
  await once(server, 'listening');
  const { port: taken } = server.address() as AddressInfo;
  const stop = async (): Promise<void> => {
    if (!server.listening) return;
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  };
  onTestFinished(stop);
  return { url: `http://127.0.0.1:${taken}/hook`, port: taken, stop };
}
