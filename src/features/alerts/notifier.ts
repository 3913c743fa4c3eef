// Alert notifier: calls the configured webhook when an alert begins, when it ends, and repeatedly while it lasts. Every
// relay checks the alerts, and the database lets one of them send what is due. If that relay dies, another one sends
// the notifications again with the same ids.

import { noteNotification, takeAlerts } from './database.js';
import type { TakenAlert } from './database.js';
import type { Database } from '../../database/connection.js';
import { releaseHold, renewHold } from '../../database/holds.js';
import { Hold } from '../../relay/upkeep/hold.js';
import { ClaimedMessage, column } from '../../core/claimed-message.js';
import { thrown } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import type { Emit } from '../../telemetry/events.js';
import type { ResolvedAlertOptions } from './options.js';

/** If this relay dies, another one sends its notifications after this time. */
const heldMs = 30_000;

export class AlertNotifier {
  readonly #database: Database;
  readonly #relayId: string;
  readonly #webhook: NonNullable<ResolvedAlertOptions['webhook']>;
  readonly #repeatMs: number;
  readonly #emit: Emit;
  readonly #shard: string | undefined;
  readonly #stop = new AbortController();

  constructor(
    database: Database,
    relayId: string,
    webhook: NonNullable<ResolvedAlertOptions['webhook']>,
    repeatMs: number,
    emit: Emit,
    shard?: string,
  ) {
    this.#shard = shard;
    this.#database = database;
    this.#relayId = relayId;
    this.#webhook = webhook;
    this.#repeatMs = repeatMs;
    this.#emit = emit;
  }

  async open(): Promise<void> {
    await this.#webhook.destination.open?.();
  }

  /** Takes the notifications that are due for this relay, and sends them. */
  async check(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    const database = this.#database;
    const repeatMs = this.#repeatMs;
    const taken = await takeAlerts(database, this.#relayId, { repeatMs, heldMs });
    const [first] = taken;
    if (first === undefined) return;
    const held = { name: 'alerts', token: first.token };
    const hold = new Hold({
      what: 'hold alerts',
      heldMs,
      renew: () => renewHold(database, held),
      release: () => releaseHold(database, held),
      emit: this.#emit,
    });
    try {
      await Promise.all(taken.map((alert) => this.#notify(alert)));
    } finally {
      await hold.release();
    }
  }

  async #notify(taken: TakenAlert): Promise<void> {
    const outcome = await this.#send(taken);
    const sent = outcome.kind === 'delivered';
    await noteNotification(this.#database, taken, sent);
    const { alert, state, value, threshold } = taken;
    if (!sent) this.#emit({ name: 'alert_untold', alert, state, outcome });
    else if (state === 'firing') this.#emit({ name: 'alert_firing', alert, value, threshold });
    else this.#emit({ name: 'alert_resolved', alert });
  }

  async #send(taken: TakenAlert): Promise<Outcome> {
    const { destination, timeoutMs } = this.#webhook;
    // not AbortSignal.any: in Node 20, a timeout that only a combined signal refers to can be garbage-collected
    const call = new AbortController();
    const stop = () => call.abort(this.#stop.signal.reason);
    const timer = setTimeout(
      () => call.abort(new DOMException('the receiver did not answer in time', 'TimeoutError')),
      timeoutMs,
    );
    this.#stop.signal.addEventListener('abort', stop);
    try {
      const { schema } = this.#database.options;
      const message = messageOf(taken, schema, this.#shard);
      return await destination.deliver(message, { signal: call.signal });
    } catch (error) {
      return thrown(error);
    } finally {
      clearTimeout(timer);
      this.#stop.signal.removeEventListener('abort', stop);
    }
  }

  /** Aborts requests in flight. Another relay, or the next one, sends these notifications again. */
  stop(): void {
    this.#stop.abort(new Error('the relay stops'));
  }

  async close(): Promise<void> {
    await this.#webhook.destination.close?.();
  }
}

/** Renders an alert as a message, so that the webhook destination can send it. */
function messageOf(taken: TakenAlert, schema: string, shard: string | undefined): ClaimedMessage {
  const { token: _token, notificationId, tries, database, ...alert } = taken;
  const row: (string | null)[] = Object.keys(column).map(() => null);
  row[column.id] = notificationId;
  row[column.claimNo] = String(tries);
  row[column.tries] = String(tries);
  row[column.topic] = `alert.${alert.state}`;
  row[column.namespace] = 'waybill';
  row[column.createdAt] = new Date().toISOString();
  row[column.payload] = JSON.stringify({ ...alert, database, schema, shard });
  return new ClaimedMessage(row);
}
