// The receiver, without any code of Waybill. It records each message when it arrives and again when it is answered, and
// decides by the seed's plan and the message's label how to answer. One request of a relay can be held, so that the
// relay certainly holds a lease when it is killed or stopped.

import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

import { Random } from '../crash/random.js';
import type { DestinationName, Plan } from './plan.js';

export type Answer = 'accept' | 'retry' | 'reject';

export type Item = {
  id: string;
  label: string;
  namespace: string;
  sequence: string | null;
  previousSequence: string | null;
};

/** One arrival of one message. Arrivals and answers share one counter. */
export type Reception = Item & {
  destination: DestinationName;
  relay: string;
  answer: Answer;
  arrivedNo: number;
  arrivedMs: number;
  /** Infinite if it was never answered. */
  answeredNo: number;
};

/** One message from a reader of the log, in order of arrival. */
export type Reading = { id: string; label: string };

type Trap = { fits: (relay: string, items: Item[]) => boolean; caught: (held: Held) => void };
export type Held = { relay: string; answer: () => void };

export class Sink {
  readonly #server: Server;
  readonly #plans = new Map<string, Plan>();
  readonly #receptions = new Map<string, Reception[]>();
  /** Messages from readers of the log. */
  readonly #readings = new Map<string, Reading[]>();
  readonly #times = new Map<string, number>();
  readonly #traps = new Set<Trap>();
  readonly #requests = new Map<string, number>();
  #counter = 0;

  private constructor() {
    this.#server = createServer((request, response) => void this.#serve(request, response));
    this.#server.keepAliveTimeout = 600_000;
  }

  static async start(): Promise<Sink> {
    const sink = new Sink();
    await new Promise<void>((resolve) => sink.#server.listen(0, '127.0.0.1', resolve));
    return sink;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  expect(plan: Plan): void {
    this.#plans.set(plan.namespace, plan);
    this.#receptions.set(plan.namespace, []);
    this.#readings.set(plan.namespace, []);
  }

  read(plan: Plan): readonly Reading[] {
    return this.#readings.get(plan.namespace) ?? [];
  }

  received(plan: Plan): readonly Reception[] {
    return this.#receptions.get(plan.namespace) ?? [];
  }

  /** The number of requests from a relay. */
  requestsOf(relay: string): number {
    return this.#requests.get(relay) ?? 0;
  }

  /** Holds the next matching request until the test lets it be answered. */
  async trap(fits: Trap['fits'], timeoutMs: number): Promise<Held | undefined> {
    let trap: Trap | undefined;
    const caught = new Promise<Held>((resolve) => {
      trap = { fits, caught: resolve };
      this.#traps.add(trap);
    });
    const held = await Promise.race([caught, delay(timeoutMs, undefined, { ref: false })]);
    if (trap !== undefined) this.#traps.delete(trap);
    return held;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const [, destination = ''] = (request.url ?? '').split('/');
    const relay = String(request.headers['x-relay']);
    this.#requests.set(relay, this.requestsOf(relay) + 1);
    const items = JSON.parse(Buffer.concat(chunks).toString('utf8')) as Item[];
    if (destination === 'log')
      for (const { id, label, namespace } of items)
        this.#readings.get(namespace)?.push({ id, label });
    const noted =
      destination === 'log'
        ? []
        : items.map((item) => this.#note(destination as DestinationName, relay, item));
    for (const trap of this.#traps) {
      if (!trap.fits(relay, items)) continue;
      this.#traps.delete(trap);
      await new Promise<void>((resolve) => trap.caught({ relay, answer: resolve }));
      break;
    }
    // a few are slow, so that there is something to overtake
    if (this.#counter % 7 === 0) await delay(this.#counter % 13);
    for (const reception of noted) reception.answeredNo = ++this.#counter;
    response.end(JSON.stringify(noted.map(({ answer }) => answer)));
  }

  #note(destination: DestinationName, relay: string, item: Item): Reception {
    const place = `${destination} ${item.label}`;
    const times = (this.#times.get(place) ?? 0) + 1;
    this.#times.set(place, times);
    const plan = this.#plans.get(item.namespace);
    const reception: Reception = {
      ...item,
      destination,
      relay,
      answer: plan === undefined ? 'accept' : decide(plan, place, times),
      arrivedNo: ++this.#counter,
      arrivedMs: Date.now(),
      answeredNo: Number.POSITIVE_INFINITY,
    };
    this.#receptions.get(item.namespace)?.push(reception);
    return reception;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

function decide(plan: Plan, place: string, times: number): Answer {
  let hash = plan.seed;
  for (const letter of place) hash = (Math.imul(hash, 31) + letter.charCodeAt(0)) | 0;
  let lot = new Random(hash).next() * 100;
  if ((lot -= plan.refused) < 0) return 'reject';
  if ((lot -= plan.refusedOnce) < 0) return times === 1 ? 'reject' : 'accept';
  if ((lot -= plan.neverTaken) < 0) return 'retry';
  if ((lot -= plan.takenLate) < 0) return times <= 2 ? 'retry' : 'accept';
  return 'accept';
}
