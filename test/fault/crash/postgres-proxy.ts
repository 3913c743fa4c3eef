// A proxy between one client and PostgreSQL that understands the protocol. It can hold a chosen statement before the
// server sees it, hold the response before the client sees it, drop either together with the connection, or fall silent
// with all connections open. So a fault happens at an exact moment.

import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

import { FrameReader, RequestReader } from './wire.js';
import type { Request } from './wire.js';

export type { Request } from './wire.js';

/** A statement that waits in the proxy: the client has sent it, the server has not seen it. */
export type HeldRequest = {
  readonly request: Request;
  /** Forwards it, and the response too. */
  pass(): void;
  /** Forwards it and holds the response. */
  forward(): Promise<HeldAnswer>;
  /** Cuts the connection: the server never sees it. */
  drop(): void;
};

/** The response to a statement that the server has executed and the client waits for. */
export type HeldAnswer = {
  readonly rows: number;
  /** The message of an error, if it is one. */
  readonly error: string | null;
  pass(): void;
  /** Cuts the connection: the client never learns the result. */
  drop(): void;
};

type Waiter = { matches: (request: Request) => boolean; caught: (held: HeldRequest) => void };

export class PostgresProxy {
  readonly #targetPort: number;
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  #waiters: Waiter[] = [];
  #frozen = false;

  private constructor(targetPort: number, server: Server) {
    this.#targetPort = targetPort;
    this.#server = server;
    server.on('connection', (client) => this.#accept(client));
  }

  static async start(targetUrl: string): Promise<PostgresProxy> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new PostgresProxy(Number(new URL(targetUrl).port), server);
  }

  /** The address of the same database through this proxy. */
  through(url: string): string {
    const proxied = new URL(url);
    proxied.port = String((this.#server.address() as AddressInfo).port);
    return proxied.href;
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Waits for the next matching statement and holds it. */
  async hold(matches: Waiter['matches'], timeoutMs = 30_000): Promise<HeldRequest> {
    return new Promise((resolve, reject) => {
      const waiter = {
        matches,
        caught: (held: HeldRequest) => {
          clearTimeout(timer);
          resolve(held);
        },
      };
      const timer = setTimeout(() => {
        this.#waiters = this.#waiters.filter((each) => each !== waiter);
        reject(new Error(`no such statement came by within ${timeoutMs} ms`));
      }, timeoutMs);
      this.#waiters.push(waiter);
    });
  }

  /**
   * Half-open TCP: every connection stays open, and nothing passes in either direction; optionally on new connections
   * too.
   */
  freeze(which: 'present' | 'present and new'): void {
    this.#frozen = which === 'present and new';
    for (const connection of this.#connections) connection.freeze();
  }

  /** Forwards what was sent during the silence. */
  thaw(): void {
    this.#frozen = false;
    for (const connection of this.#connections) connection.thaw();
  }

  /** Resets the silent connections: data sent on them meanwhile is lost. */
  cutFrozen(): void {
    this.#frozen = false;
    for (const connection of this.#connections) if (connection.frozen) connection.destroy();
  }

  /** Resets every connection. */
  cut(): void {
    for (const connection of this.#connections) connection.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #accept(client: Socket): void {
    const connection = new Connection(
      client,
      connect({ host: '127.0.0.1', port: this.#targetPort, noDelay: true }),
      (request) => this.#takeWaiter(request),
      () => this.#connections.delete(connection),
    );
    this.#connections.add(connection);
    if (this.#frozen) connection.freeze();
  }

  #takeWaiter(request: Request): Waiter | undefined {
    const waiter = this.#waiters.find((each) => each.matches(request));
    if (waiter !== undefined) this.#waiters = this.#waiters.filter((each) => each !== waiter);
    return waiter;
  }
}

type Expected = {
  /** Set while the response is to be held. */
  hold: ((answer: HeldAnswer) => void) | undefined;
  bytes: Buffer[];
  rows: number;
  error: string | null;
};

class Connection {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #requests = new RequestReader();
  readonly #answers = new FrameReader('server');
  readonly #takeWaiter: (request: Request) => Waiter | undefined;
  /** Requests behind a held one, in order. */
  readonly #queue: Request[] = [];
  #holding = false;
  frozen = false;
  /** One entry per request that the server has still to answer. */
  readonly #expected: Expected[] = [];

  constructor(
    client: Socket,
    server: Socket,
    takeWaiter: (request: Request) => Waiter | undefined,
    closed: () => void,
  ) {
    this.#client = client;
    this.#server = server;
    this.#takeWaiter = takeWaiter;
    client.setNoDelay(true);
    client.on('data', (chunk) => this.#fromClient(chunk));
    server.on('data', (chunk) => this.#fromServer(chunk));
    client.on('error', () => {});
    server.on('error', () => {});
    // the client is gone: the server still gets what was forwarded, as it would without a proxy
    client.on('close', () => {
      closed();
      server.end();
    });
    server.on('close', () => {
      client.destroy();
      for (const expected of this.#expected.splice(0))
        expected.hold?.(this.#heldAnswer({ ...expected, error: 'the server is gone' }));
    });
  }

  freeze(): void {
    this.frozen = true;
    this.#client.pause();
    this.#server.pause();
  }

  thaw(): void {
    this.frozen = false;
    this.#client.resume();
    this.#server.resume();
  }

  destroy(): void {
    this.#client.destroy();
    this.#server.destroy();
  }

  #fromClient(chunk: Buffer): void {
    for (const request of this.#requests.read(chunk)) this.#queue.push(request);
    this.#pump();
  }

  #pump(): void {
    while (!this.#holding) {
      const request = this.#queue.shift();
      if (request === undefined) return;
      const waiter = this.#takeWaiter(request);
      if (waiter === undefined) this.#send(request, undefined);
      else this.#hold(request, waiter);
    }
  }

  #hold(request: Request, waiter: Waiter): void {
    this.#holding = true;
    const release = (answerHolder: Expected['hold']): void => {
      this.#holding = false;
      this.#send(request, answerHolder);
      this.#pump();
    };
    waiter.caught({
      request,
      pass: () => release(undefined),
      forward: async () => new Promise((resolve) => release(resolve)),
      drop: () => this.destroy(),
    });
  }

  #send(request: Request, hold: Expected['hold']): void {
    if (request.answered) this.#expected.push({ hold, bytes: [], rows: 0, error: null });
    if (!this.#server.writableEnded) this.#server.write(request.bytes);
  }

  #fromServer(chunk: Buffer): void {
    const passing: Buffer[] = [];
    for (const { type, bytes } of this.#answers.read(chunk)) {
      const expected = this.#expected[0];
      if (expected?.hold === undefined) {
        passing.push(bytes);
      } else {
        expected.bytes.push(bytes);
        if (type === 'D') expected.rows += 1;
        if (type === 'E') expected.error = bytes.toString('utf8', 5).replaceAll('\0', ' ');
      }
      // the server asks for nothing after its authentication here: every request ends with a Z
      if (type === 'Z') {
        this.#expected.shift();
        expected?.hold?.(this.#heldAnswer(expected));
      }
    }
    if (passing.length > 0 && !this.#client.destroyed) this.#client.write(Buffer.concat(passing));
  }

  #heldAnswer({ bytes, rows, error }: Expected): HeldAnswer {
    return {
      rows,
      error,
      pass: () => {
        if (!this.#client.destroyed) this.#client.write(Buffer.concat(bytes));
      },
      drop: () => this.destroy(),
    };
  }
}
