// The relay's ear: one connection on LISTEN. It tests itself at the start, because a pooler swallows
// notifications silently; it asks the server for a sign of life now and then, because a half-open
// connection does so too; and it comes back by itself. While it is deaf, producers are told not to ring,
// and the fallback poll does the work.

import type pg from 'pg';

import { connectDirectly, destroy, withDeadline } from '../database/connection.js';
import type { Database } from '../database/connection.js';
import { doorbellChannel, ringDoorbell } from '../database/doorbells.js';
import { errorText } from '../errors.js';
import type { Emit } from '../telemetry/events.js';

export type WakeUpOptions = {
  database: Database;
  relayId: string;
  emit: Emit;
  /** A bell for this destination, or, with null, for whichever: something may have been missed. */
  onRing: (destinationId: number | null) => void;
  /** Endpoints of the database were added, changed or removed. */
  onEndpoints: () => void;
  onListening: () => void;
};

const answerMs = 5000;
const signOfLifeMs = 5000;
const maxBackoffMs = 5000;

export class WakeUp {
  readonly #options: WakeUpOptions;
  #client: pg.Client | undefined;
  #listening = false;
  #stopping = false;
  #wakeFromPause: (() => void) | undefined;
  #loop: Promise<void> = Promise.resolve();

  constructor(options: WakeUpOptions) {
    this.#options = options;
  }

  get listening(): boolean {
    return this.#listening;
  }

  /** Resolves after the first attempt, whether it succeeded or not. */
  async start(): Promise<void> {
    await new Promise<void>((firstAttemptEnded) => {
      this.#loop = this.#keepListening(firstAttemptEnded);
    });
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    this.#listening = false;
    this.#wakeFromPause?.();
    if (this.#client) destroy(this.#client);
    await this.#loop;
  }

  async #keepListening(firstAttemptEnded: () => void): Promise<void> {
    for (let backoffMs = 100; !this.#stopping; backoffMs = Math.min(backoffMs * 2, maxBackoffMs)) {
      try {
        const client = await this.#listen();
        backoffMs = 100;
        firstAttemptEnded();
        await this.#whileAlive(client);
      } catch (error) {
        if (!this.#stopping)
          this.#options.emit({ name: 'listen_unavailable', reason: errorText(error) });
      }
      this.#listening = false;
      if (this.#client) destroy(this.#client);
      firstAttemptEnded();
      if (!this.#stopping) await this.#pause(backoffMs);
    }
  }

  async #listen(): Promise<pg.Client> {
    const { database, relayId, emit, onRing, onEndpoints, onListening } = this.#options;
    const channel = await doorbellChannel(database);
    const client = await connectDirectly(database.options, 'waybill listen');
    this.#client = client;
    const test = `test ${relayId}`;
    await withDeadline(
      'LISTEN self-test (does the address lead through a pooler? set database.directUrl)',
      answerMs,
      new Promise<void>((resolve, reject) => {
        client.on('notification', ({ payload = '' }) => {
          if (payload === test) return resolve();
          if (payload.startsWith('test ')) return;
          if (payload === 'endpoints') return onEndpoints();
          emit({ name: 'woken', by: 'doorbell' });
          onRing(Number(payload));
        });
        client.once('end', () => reject(new Error('the connection ended')));
        // rung on another connection: a pooler passes on what the same one rings
        client
          .query(`LISTEN ${client.escapeIdentifier(channel)}`)
          .then(() => ringDoorbell(database, channel, test))
          .catch(reject);
      }),
      () => destroy(client),
    );
    this.#listening = true;
    onListening();
    // whatever was rung while nobody listened
    onRing(null);
    onEndpoints();
    return client;
  }

  async #whileAlive(client: pg.Client): Promise<void> {
    let broken: Error | undefined;
    client.on('error', (error) => {
      broken = error;
      this.#wakeFromPause?.();
    });
    client.on('end', () => {
      broken ??= new Error('the connection ended');
      this.#wakeFromPause?.();
    });
    while (!this.#stopping) {
      await this.#pause(signOfLifeMs);
      if (broken) throw broken;
      if (this.#stopping) return;
      await withDeadline('sign of life', answerMs, client.query('SELECT 1'), () => destroy(client));
    }
  }

  async #pause(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wakeFromPause = resolve;
      timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
    this.#wakeFromPause = undefined;
  }
}
