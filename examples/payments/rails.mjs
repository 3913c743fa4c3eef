// The executor: a relay with one destination per rail. A payment is checked before a rail is called, a rail's answer is
// classified by its code alone, and each rail says what happens behind a payment that failed for good.

import { defineConfig, delivered, handler, paymentGuard, retry } from 'waybill';

/**
 * The rails that there are: what they take, and what happens to the later payments of a participant after one has failed
 * for good. `block`: they wait until an operator retries, skips or discards it. `continue`: they are sent.
 */
export const rails = {
  // standing orders and payrolls: a later transfer may depend on the one before it
  sepa: { takes: { destination: 'iban', currencies: ['EUR'] }, whenDead: 'block' },
  // each card payment is authorised by itself
  card: { takes: { destination: 'card_token' }, whenDead: 'continue' },
  // wallets with a balance: a later transfer may depend on the one before it
  mobile: {
    takes: { destination: 'mobile', currencies: ['KES', 'TZS', 'UGX'] },
    whenDead: 'block',
  },
};

/** What the codes of the rails mean. One that is not here is tried again: every try carries the same idempotency key. */
export const codes = {
  ACCOUNT_CLOSED: 'reject',
  INSUFFICIENT_FUNDS: 'reject',
  LIMIT_EXCEEDED: 'reject',
  RAIL_BUSY: 'retry',
  CREDENTIALS_REVOKED: 'pause',
  default: 'retry',
};

/**
 * @typedef {{ reference?: string, code?: string, message?: string }} Answer
 * @param {(rail: string, payment: object, signal: AbortSignal) => Answer | Promise<Answer>} send its reference, or its code
 * @param {{ databaseUrl: string, retry?: import('waybill').RetryPolicy }} options
 */
export function executor(send, { databaseUrl, retry: policy }) {
  const toRail = (rail) =>
    handler(
      async (message, { signal }) => {
        const { rail_type: _, ...payment } = message.payload;
        const answer = await send(
          rail,
          {
            ...payment,
            instructionId: message.aggregateId,
            idempotencyKey: message.headers.idempotency_key,
            participantId: message.key,
            sequenceId: message.sequence,
          },
          signal,
        );
        if (answer.code === undefined) return delivered(answer.reference);
        return retry({ code: 'rail_error', remoteCode: answer.code, message: answer.message });
      },
      {
        guard: paymentGuard({
          rails: { [rail]: rails[rail].takes },
          fields: { rail: 'rail_type' },
        }),
        classify: codes,
        whenDead: rails[rail].whenDead,
        timeoutMs: 30_000,
        concurrency: 10,
        retry: policy ?? { maxAttempts: 10, baseMs: 1000, maxMs: 300_000 },
      },
    );
  return defineConfig({
    database: { url: databaseUrl },
    destinations: Object.fromEntries(
      Object.keys(rails).map((rail) => [`rail.${rail}`, toRail(rail)]),
    ),
    routes: Object.keys(rails).map((rail) => ({
      topic: `payment.${rail}`,
      to: `rail.${rail}`,
      namespace: 'payments',
    })),
    // deliveries of a dead executor return after 90 + 15 seconds at most; a living one extends its lease for as long as
    // a rail takes
    relay: { pollMs: 25, fallbackPollMs: 500, leaseMs: 90_000, reapMs: 15_000 },
    retention: { messagesDays: 90, attemptsDays: null },
  });
}
