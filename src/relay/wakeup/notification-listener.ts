// Notification listener: one connection on LISTEN. It tests itself at the start, because a pooler drops
// notifications silently. It checks the connection every few seconds, because a half-open one drops them too, and
// reconnects. While it does not listen, producers do not notify, and the fallback poll finds the work.

import type pg from 'pg';

import { withDeadline } from '../../database/deadline.js';
import { connectDirectly, destroy } from '../../database/direct-connection.js';
import type { Database } from '../../database/connection.js';
import { notificationChannel, sendNotification } from '../../database/wake-up.js';
import { errorText } from '../../core/errors.js';
import type { Emit } from '../../telemetry/events.js';
import { Signal } from '../signal.js';

export type NotificationListenerOptions = {
  database: Database;
  relayId: string;
  emit: Emit;
  onNotification: (destinationId: number) => void;
  /** Endpoints of the database were added, changed or removed. */
  onEndpoints: () => void;
  /** It listens from now on; notifications may have been missed before. */
  onListening: () => void;
};

const answerMs = 5000;
/** Until it is noticed that a connection is dead, the fallback poll finds the work. */
const signOfLifeMs = 15_000;
const maxBackoffMs = 5000;

export class NotificationListener {
  readonly #options: NotificationListenerOptions;
  #client: pg.Client | undefined;
  #listening = false;
  #stopping = false;
  /** Raised at a stop, and when the connection breaks. */
  readonly #interrupted = new Signal();
  #loop: Promise<void> = Promise.resolve();

  constructor(options: NotificationListenerOptions) {
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
    this.#interrupted.raise();
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
    const { database, relayId, emit, onNotification, onEndpoints, onListening } = this.#options;
    const channel = await notificationChannel(database);
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
          emit({ name: 'woken', by: 'notification' });
          onNotification(Number(payload));
        });
        client.once('end', () => reject(new Error('the connection ended')));
        // sent on another connection: a pooler passes on what a connection sends to itself, so that would prove
        // nothing
        client
          .query(`LISTEN ${client.escapeIdentifier(channel)}`)
          .then(() => sendNotification(database, channel, test))
          .catch(reject);
      }),
      () => destroy(client),
    );
    this.#listening = true;
    onListening();
    return client;
  }

  async #whileAlive(client: pg.Client): Promise<void> {
    let broken: Error | undefined;
    client.on('error', (error) => {
      broken = error;
      this.#interrupted.raise();
    });
    client.on('end', () => {
      broken ??= new Error('the connection ended');
      this.#interrupted.raise();
    });
    while (!this.#stopping) {
      await this.#pause(signOfLifeMs);
      if (broken) throw broken;
      if (this.#stopping) return;
      await withDeadline('sign of life', answerMs, client.query('SELECT 1'), () => destroy(client));
    }
  }

  async #pause(ms: number): Promise<void> {
    this.#interrupted.reset();
    await this.#interrupted.wait(ms);
  }
}
