// A TCP proxy between a destination and the real service. It forwards everything, slowly, or nothing; it can cut
// connections or refuse them. The service does not notice it.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

import { onTestFinished } from 'vitest';

import type { Address } from '../contract/services/service.js';

export class TcpProxy {
  readonly address: Address;
  /**
   * What happens to bytes: forwarded, forwarded after a delay, or swallowed while the connection stays open.
   * `unanswered` swallows only what the service sends.
   */
  behaviour: 'pass' | 'silent' | 'unanswered' | { delayMs: number } = 'pass';
  /** How many bytes the service has sent. */
  answeredBytes = 0;
  #target: Address | undefined;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  static async open(): Promise<TcpProxy> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new TcpProxy(server);
  }

  private constructor(server: Server) {
    this.#server = server;
    this.address = { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
    server.on('connection', (socket) => this.#join(socket));
  }

  leadTo(target: Address): void {
    this.#target = target;
  }

  get connections(): number {
    return this.#sockets.size / 2;
  }

  /** Breaks every connection at once; new ones are accepted. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  /** Stops listening: connections are cut and new ones refused. */
  async leave(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    await closed;
  }

  async comeBack(): Promise<void> {
    this.behaviour = 'pass';
    if (this.#server.listening) return;
    this.#server.listen(this.address.port, this.address.host);
    await once(this.#server, 'listening');
  }

  async close(): Promise<void> {
    if (this.#server.listening) await this.leave();
  }

  #join(client: Socket): void {
    if (this.#target === undefined) return void client.destroy();
    const service = connect(this.#target.port, this.#target.host);
    for (const [from, to] of [
      [client, service],
      [service, client],
    ] as const) {
      this.#sockets.add(from);
      from.on('error', () => undefined);
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
      from.on('data', (bytes) => this.#pass(bytes, to, from === service));
    }
  }

  #pass(bytes: Buffer, to: Socket, isAnswer: boolean): void {
    if (isAnswer) this.answeredBytes += bytes.length;
    if (this.behaviour === 'silent' || (this.behaviour === 'unanswered' && isAnswer)) return;
    if (typeof this.behaviour === 'string') return void to.write(bytes);
    setTimeout(() => void (to.destroyed || to.write(bytes)), this.behaviour.delayMs);
  }
}

/** The address of a database that accepts connections and sends nothing, until the test ends. */
export async function silentAddress(): Promise<string> {
  const server = createServer(() => undefined).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `postgresql://unknown@127.0.0.1:${(server.address() as AddressInfo).port}/none`;
}
