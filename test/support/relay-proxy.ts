// A proxy between a relay and its database that can cut a connection at a chosen moment: after the server has done the
// work, but before the relay has the response. The relay then cannot know what happened.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { onTestFinished } from 'vitest';

export type Wire = {
  /** The database's address through the proxy. */
  readonly url: string;
  /** Cuts the connection of the next response that contains these bytes, before the relay sees it. */
  loseAnswerWith(text: string): void;
  /** Cuts the connection of the next request that contains these bytes, after the server has answered it. */
  loseAnswerTo(text: string): void;
  /** From the next request that contains these bytes on, that connection stays open and answers nothing. */
  holdAnswerTo(text: string): void;
  /** From the next response that contains these bytes on, that connection stays open and answers nothing. */
  holdAnswerWith(text: string): void;
  /** Counts the requests that contain these bytes from now on. */
  countRequests(text: string): { readonly count: number };
  /** The number of responses that were held back. */
  readonly held: number;
  /** The number of responses that were lost. */
  readonly lost: number;
  /** True: notifications are dropped, as behind a pooler. */
  deaf: boolean;
  /** True: all traffic is dropped silently. */
  silent: boolean;
};

export async function openWire(databaseUrl: string): Promise<Wire> {
  const target = new URL(databaseUrl);
  const sockets = new Set<Socket>();
  let answerWith: string | undefined;
  let answerTo: string | undefined;
  let heldTo: string | undefined;
  let heldWith: string | undefined;
  const counters: { text: string; count: number }[] = [];
  let held = 0;
  let lost = 0;
  const wire = {
    url: '',
    deaf: false,
    silent: false,
    loseAnswerWith: (text: string) => void (answerWith = text),
    loseAnswerTo: (text: string) => void (answerTo = text),
    holdAnswerTo: (text: string) => void (heldTo = text),
    holdAnswerWith: (text: string) => void (heldWith = text),
    countRequests: (text: string) => {
      const counter = { text, count: 0 };
      counters.push(counter);
      return counter;
    },
    get held() {
      return held;
    },
    get lost() {
      return lost;
    },
  };

  const server = createServer({ allowHalfOpen: true }, (relay) => {
    const database = connect(Number(target.port), target.hostname);
    // a dead network does not forward the end of a connection either
    relay.on('end', () => void (wire.silent || relay.destroy()));
    let doomed = false;
    let mute = false;
    for (const socket of [relay, database]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        relay.destroy();
        database.destroy();
      });
    }
    relay.on('data', (chunk) => {
      if (wire.silent) return;
      for (const counter of counters) if (chunk.includes(counter.text)) counter.count += 1;
      if (answerTo !== undefined && chunk.includes(answerTo)) {
        answerTo = undefined;
        doomed = true;
      }
      if (heldTo !== undefined && chunk.includes(heldTo)) {
        heldTo = undefined;
        mute = true;
      }
      database.write(chunk);
    });
    database.on('data', (chunk) => {
      if (wire.silent) return;
      if (heldWith !== undefined && chunk.includes(heldWith)) {
        heldWith = undefined;
        mute = true;
      }
      if (mute) return void (held += 1);
      if (answerWith !== undefined && chunk.includes(answerWith)) {
        answerWith = undefined;
        doomed = true;
      }
      if (!doomed) return void relay.write(wire.deaf ? withoutNotifications(chunk) : chunk);
      lost += 1;
      relay.destroy();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });

  const url = new URL(databaseUrl);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  wire.url = url.href;
  return wire;
}

/** The server's messages without NotificationResponse; each is a letter, a length and that many bytes. */
function withoutNotifications(chunk: Buffer): Buffer {
  const kept: Buffer[] = [];
  for (let start = 0; start < chunk.length;) {
    const end =
      start + 1 + (start + 5 <= chunk.length ? chunk.readInt32BE(start + 1) : chunk.length);
    if (chunk[start] !== 'A'.charCodeAt(0)) kept.push(chunk.subarray(start, end));
    start = end;
  }
  return Buffer.concat(kept);
}
