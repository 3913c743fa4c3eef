// The clock of a real server runs ahead and is corrected while producers, a relay and a subscription work. No message
// is lost or waits for the wrong time, and each key stays in order, at a destination and in a subscription.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import pg from 'pg';

import { createRelay } from '../../src/config.js';
import { migrateUp } from '../../src/database/migrate.js';
import { handler } from '../../src/destinations/handler.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { subscribe } from '../../src/consumer/subscribe.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { findCompiler, startWithMovableClock } from '../support/movable-clock.js';
import type { MovableClock } from '../support/movable-clock.js';
import { waitFor } from '../support/wait.js';

const compiler = findCompiler();
const hourSeconds = 3600;
const dayMs = 86_400_000;

type Seen = { id: string; key: string | null; sequence: string | null };

/** The sequences of each key, in the order of their first arrival. */
function sequencesOf(seen: readonly Seen[]): Map<string, number[]> {
  const known = new Set<string>();
  const keys = new Map<string, number[]>();
  for (const { id, key, sequence } of seen) {
    if (key === null || known.has(id)) continue;
    known.add(id);
    keys.set(key, [...(keys.get(key) ?? []), Number(sequence)]);
  }
  return keys;
}

describe.runIf(compiler !== undefined)('a clock that ran ahead and is corrected', () => {
  let clock: MovableClock;
  let client: pg.Client;
  const outbox = createOutbox();
  const enqueued: string[] = [];

  beforeAll(async () => {
    clock = await startWithMovableClock(compiler ?? '');
    await migrateUp({ url: clock.server.url });
    client = new pg.Client({ connectionString: clock.server.url });
    await client.connect();
  }, 60_000);

  afterAll(async () => {
    await client?.end();
    await clock?.remove();
  }, 60_000);

  /** Sends a message of each key, and one without a key, each in its own transaction, all on one connection. */
  async function produce(rounds: number): Promise<void> {
    for (let round = 0; round < rounds; round += 1) {
      for (const key of ['a', 'b', 'c', undefined]) {
        const message = { topic: 'clock.test', payload: {}, ...(key !== undefined && { key }) };
        enqueued.push((await outbox.enqueue(client, message, { autonomous: true })).id);
      }
    }
  }

  test('P2 P12 N4 everything is delivered at once after the correction, in the order of each key', async () => {
    const { url } = clock.server;
    const sent: Seen[] = [];
    const read: Seen[] = [];
    const events: RelayEvent[] = [];
    const relay = createRelay({
      database: { url },
      destinations: { crm: handler((message) => void sent.push(message)) },
      routes: [{ topic: 'clock.*', to: 'crm' }],
      onEvent: (event) => void events.push(event),
    });
    await relay.start();
    await client.query(`SELECT outbox.set_paused('crm', true)`);
    // the relay or the subscription corrects the times, whichever looks first
    const onEvent = (event: RelayEvent) => void events.push(event);
    const options = { name: 'log', database: { url }, batchSize: 3, pollMs: 20, onEvent } as const;
    const first = await subscribe(options, (batch) => void read.push(...batch));
    await first.stop();

    // messages from the time of the wrong clock, and later ones of their keys, are neither sent nor read yet
    await produce(4);
    clock.setAhead(6 * hourSeconds);
    await produce(4);
    clock.setAhead(0);
    await produce(4);
    const { rows } = await client.query<{ ahead: number }>(
      `SELECT count(*)::int AS ahead FROM outbox.deliveries WHERE available_at > clock_timestamp()`,
    );
    expect(rows).toEqual([{ ahead: 16 }]);
    const { rows: newest } = await client.query<{ at: Date }>('SELECT outbox.id_time($1) AS at', [
      enqueued.at(-1),
    ]);
    expect(
      Math.abs((newest[0]?.at.getTime() ?? 0) - Date.now()),
      'the id of an open session',
    ).toBeLessThan(dayMs / 48);

    await client.query(`SELECT outbox.set_paused('crm', false)`);
    const second = await subscribe(options, (batch) => void read.push(...batch));
    await waitFor(() => new Set(sent.map(({ id }) => id)).size === enqueued.length, {
      what: 'all deliveries',
      timeoutMs: 60_000,
    });
    await waitFor(() => new Set(read.map(({ id }) => id)).size === enqueued.length, {
      what: 'the whole log',
      timeoutMs: 60_000,
    });
    expect(events.map(({ name }) => name)).toContain('misdated_released');
    const all = Array.from({ length: 12 }, (_, n) => n + 1);
    for (const key of ['a', 'b', 'c']) {
      expect(sequencesOf(sent).get(key), `key ${key} at the destination`).toEqual(all);
      expect(sequencesOf(read).get(key), `key ${key} from the log`).toEqual(all);
    }
    const { rows: health } = await client.query<{ metric: string; value: number }>(
      `SELECT metric, value::float8 FROM outbox.health WHERE metric IN ('average_delivery_ms', 'misdated')`,
    );
    for (const { metric, value } of health) expect(value, metric).toBeGreaterThanOrEqual(0);
    await second.stop();
    await relay.stop();
  }, 120_000);
});
