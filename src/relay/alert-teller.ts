// Tells the webhook of the configuration about alerts: one request when an alert begins, one when it has ended, and
// again while it lasts. Every relay looks; the database decides which of them tells, so each is told once, or again
// under the same id where a relay died over it.

import { endAlert, syncAlertThresholds, takeAlerts } from '../database/alerts.js';
import type { TakenAlert } from '../database/alerts.js';
import type { Database } from '../database/connection.js';
import { ClaimedMessage, column } from '../model/claimed-message.js';
import { thrown } from '../model/outcome.js';
import type { Outcome } from '../model/outcome.js';
import type { Emit } from '../telemetry/events.js';
import type { ResolvedAlertOptions } from './alert-options.js';
import type { RelaySetup } from './setup.js';

/** Beside the time for the requests: for saying how they went. */
const recordMs = 30_000;

export class AlertTeller {
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

  /** Looks at the alerts, and tells what is this relay's to tell. */
  async check(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    const heldMs = this.#webhook.timeoutMs + recordMs;
    const taken = await takeAlerts(this.#database, this.#relayId, {
      repeatMs: this.#repeatMs,
      heldMs,
    });
    await Promise.all(taken.map((alert) => this.#tell(alert)));
  }

  async #tell(taken: TakenAlert): Promise<void> {
    const outcome = await this.#send(taken);
    const told = outcome.kind === 'delivered';
    await endAlert(this.#database, this.#relayId, taken, told);
    const { alert, state, value, threshold } = taken;
    if (!told) this.#emit({ name: 'alert_untold', alert, state, outcome });
    else if (state === 'firing') this.#emit({ name: 'alert_firing', alert, value, threshold });
    else this.#emit({ name: 'alert_resolved', alert });
  }

  async #send(taken: TakenAlert): Promise<Outcome> {
    const { destination, timeoutMs } = this.#webhook;
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(timeoutMs)]);
    try {
      const { schema } = this.#database.options;
      return await destination.deliver(messageOf(taken, schema, this.#shard), { signal });
    } catch (error) {
      return thrown(error);
    }
  }

  /** Gives up what is under way: it is told again by another relay, or by the next one. */
  stop(): void {
    this.#stop.abort(new Error('the relay stops'));
  }

  async close(): Promise<void> {
    await this.#webhook.destination.close?.();
  }
}

/** Makes the thresholds of the configuration those of the database. Without a webhook, there is nobody to tell. */
export async function alertTellerOf(
  { alerts, shard }: RelaySetup,
  database: Database,
  relayId: string,
  emit: Emit,
): Promise<AlertTeller | undefined> {
  if (alerts === undefined) return undefined;
  const { thresholds, webhook, repeatMs } = alerts;
  await syncAlertThresholds(database, thresholds);
  if (webhook === null) return undefined;
  return new AlertTeller(database, relayId, webhook, repeatMs, emit, shard?.name);
}

/** An alert as the message that it is to its receiver. */
function messageOf(taken: TakenAlert, schema: string, shard: string | undefined): ClaimedMessage {
  const { notificationId, tries, database, ...alert } = taken;
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
