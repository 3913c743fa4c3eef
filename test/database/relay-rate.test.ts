// Rate limits over all relays: no more than the limit reaches a destination, and messages that cannot be sent soon are
// not held.

import { describe, expect, it } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import type { RateLimit } from '../../src/core/destination-limits.js';
import { newcomerMs } from '../../src/relay/delivery/rate-limiter.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { numbered, send, sendOne, startRelay, untilCount, untilPlaces } from '../support/relay.js';

const db = testDatabase();

type Sent = { atMs: number; messages: number };

/** No period has more messages than the limit and one burst. */
function expectWithin(sent: readonly Sent[], { perSecond, burst = perSecond }: RateLimit): void {
  for (const [from, first] of sent.entries()) {
    let messages = 0;
    for (const { atMs, messages: count } of sent.slice(from)) {
      messages += count;
      // the test reads its clock slightly later than the limit
      const allowed = burst + (perSecond * (atMs - first.atMs + 20)) / 1000;
      expect(messages).toBeLessThanOrEqual(allowed);
    }
  }
}

describe('a rate limit', () => {
  it('P9 applies to single messages, and no more are claimed than can be sent soon', async () => {
    const sent: Sent[] = [];
    const rate = { perSecond: 10, burst: 5 };
    const relay = await startRelay(db, {
      destinations: {
        limited: handler(() => void sent.push({ atMs: performance.now(), messages: 1 }), { rate }),
      },
    });
    await send(db, numbered('limited', 25));
    await untilPlaces(db, 'limited', { waiting: 0, leased: 0, delivered: 25 });
    expectWithin(sent, rate);
    const spanMs = (sent.at(-1)?.atMs ?? 0) - (sent[0]?.atMs ?? 0);
    expect(spanMs).toBeGreaterThan(1900);
    // one second's worth, where without a limit it would be twenty at once
    expect(Math.max(...relay.of('claimed').map(({ count }) => count))).toBeLessThanOrEqual(10);
  });

  it('P9 W8 is given as the reason for waiting while it is used up, and no longer', async () => {
    const rate = { perSecond: 1, burst: 1 };
    await startRelay(db, { destinations: { patient: handler(() => undefined, { rate }) } });
    const ids = await send(db, numbered('patient', 100));
    const reasonOf = async (id: string | undefined) => {
      const { rows } = await db.query<{ reason: string }>(
        `SELECT reason FROM ${db.quoted}.explain($1)`,
        [id],
      );
      return rows[0]?.reason;
    };
    await waitFor(async () => (await reasonOf(ids.at(-1))) === 'rate_limited', {
      what: 'the reason',
    });
    await db.query(`SELECT ${db.quoted}.discard_deliveries('patient')`);
    await waitFor(
      async () => {
        const { rows } = await db.query(
          `SELECT FROM ${db.quoted}.relays WHERE 'patient' = ANY (limited)`,
        );
        return rows.length === 0;
      },
      { what: 'the limit to be free again' },
    );
  });

  it('P9 counts the messages of a batch', async () => {
    const sent: Sent[] = [];
    const rate = { perSecond: 100, burst: 10 };
    await startRelay(db, {
      destinations: {
        batched: batchHandler(
          (messages) => {
            sent.push({ atMs: performance.now(), messages: messages.length });
            return Promise.resolve();
          },
          { rate, batchSize: 10 },
        ),
      },
    });
    await send(db, numbered('batched', 80));
    await untilPlaces(db, 'batched', { waiting: 0, leased: 0, delivered: 80 });
    expectWithin(sent, rate);
  });

  it('P9 keeps the order of keys and fairness between tenants', async () => {
    const received: { tenant: string | null; n: number }[] = [];
    await startRelay(db, {
      destinations: {
        turns: handler(
          ({ tenantId, payload }) =>
            void received.push({ tenant: tenantId, n: (payload as { n: number }).n }),
          { rate: { perSecond: 40, burst: 1 }, fairness: 'tenant' },
        ),
      },
    });
    await send(db, numbered('turns', 20, { tenantId: 'large', key: 'k' }));
    await send(db, numbered('turns', 3, { tenantId: 'small' }));
    await untilPlaces(db, 'turns', { waiting: 0, leased: 0, delivered: 23 });
    const large = received.filter(({ tenant }) => tenant === 'large').map(({ n }) => n);
    expect(large).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
    const lastSmall = received.findLastIndex(({ tenant }) => tenant === 'small');
    expect(lastSmall).toBeLessThan(20);
  });

  it('P9 applies to stream mode', async () => {
    const sent: Sent[] = [];
    const rate = { perSecond: 50, burst: 5 };
    await startRelay(db, {
      destinations: {
        brook: handler(() => void sent.push({ atMs: performance.now(), messages: 1 }), {
          rate,
          mode: 'stream',
          from: 'beginning',
        }),
      },
    });
    await send(db, numbered('brook', 30));
    await untilCount(sent, 30, 'messages');
    expectWithin(sent, rate);
  });

  it('P9 is shared by the living relays; a new relay waits until they know of it', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.relays (id, name, version, configuration, destinations, started_at, heartbeat_at)
       VALUES (gen_random_uuid(), 'the other', '0', '0', '{shared}', now(), now() + interval '1 hour'),
              (gen_random_uuid(), 'a dead one', '0', '0', '{shared}', now(), now() - interval '16 seconds'),
              (gen_random_uuid(), 'of others', '0', '0', '{other}', now(), now())`,
    );
    const sent: Sent[] = [];
    const startedMs = performance.now();
    await startRelay(db, {
      destinations: {
        shared: handler(() => void sent.push({ atMs: performance.now(), messages: 1 }), {
          rate: { perSecond: 20, burst: 2 },
        }),
      },
    });
    await send(db, numbered('shared', 8));
    await untilCount(sent, 8, 'messages');
    expect((sent[0]?.atMs ?? 0) - startedMs).toBeGreaterThanOrEqual(newcomerMs);
    expectWithin(sent, { perSecond: 10, burst: 1 });
  });

  it('P9 a stop does not wait for tokens: unsent messages are released', async () => {
    const sent: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        slow: handler(() => void sent.push(1), { rate: { perSecond: 0.01, burst: 1 } }),
      },
    });
    await sendOne(db, { topic: 'slow' });
    await untilCount(sent, 1, 'messages');
    await sendOne(db, { topic: 'slow' });
    await untilPlaces(db, 'slow', { leased: 1 });
    await relay.stop();
    await untilPlaces(db, 'slow', { waiting: 1, leased: 0, delivered: 1 });
    expect(sent).toHaveLength(1);
  });
});
