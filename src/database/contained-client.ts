// Contained client: a client of the driver whose errors cannot end the process. The driver parses answers inside the
// data event of its socket, so an exception there (a value longer than the longest string, an unreadable answer, a
// failing listener) would be uncaught. Here it closes that connection, and its query fails.

import type { Duplex } from 'node:stream';

import pg from 'pg';

/** The part of a stream that the driver reads from. */
type Readings = { on(event: string, listener: (chunk: unknown) => void): unknown };
type DriverConnection = { attachListeners(stream: Readings): void };

export class ContainedClient extends pg.Client {
  constructor(config?: string | pg.ClientConfig) {
    super(config);
    const { connection } = this as unknown as { connection: DriverConnection };
    const attach = connection.attachListeners.bind(connection);
    // called once the stream is known: the socket, or TLS on top of it
    connection.attachListeners = (stream) => attach(contained(stream as unknown as Duplex));
  }
}

function contained(stream: Duplex): Readings {
  return {
    on(event, listener) {
      if (event !== 'data') return stream.on(event, listener);
      return stream.on('data', (chunk: unknown) => {
        // ignores the rest of the unreadable answer
        if (stream.destroyed) return;
        try {
          listener(chunk);
        } catch (error) {
          stream.destroy(error instanceof Error ? error : new Error(String(error)));
        }
      });
    },
  };
}
