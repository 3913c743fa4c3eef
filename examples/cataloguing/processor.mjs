// Processor: a function that lives for seconds. It reads on from its named cursor until it has caught up or its time is
// over, and then sends the notifications that are due. The next one goes on. A batch that was not finished comes again
// with the same event ids, so the work must be idempotent.

import { createRelay, drainSubscription } from 'waybill';

import config from './waybill.config.mjs';

/**
 * @param {{
 *   database?: import('waybill').DatabaseOptions,
 *   name?: string,
 *   maxMs?: number,
 *   handle: (events: ReturnType<typeof toEvent>[], signal: AbortSignal) => unknown,
 * }} options name: the processor_name, under which the cursor is kept
 */
export async function processEvents({ database, name = 'job-index', maxMs = 25_000, handle }) {
  const half = Math.ceil(maxMs / 2);
  const began = performance.now();
  const read = await drainSubscription(
    // leaseMs: after a function was killed, the next one waits no longer than this
    { name, database, topics: ['job.*'], from: 'beginning', batchSize: 100, leaseMs: 5_000 },
    (messages, { signal }) => handle(messages.map(toEvent), signal),
    { maxMs: half },
  );
  const left = Math.max(1, Math.round(began + maxMs - performance.now()));
  const sent = await createRelay({ ...config, database }).drain({ maxMs: left });
  return { read, sent };
}

/** A message with the names of `_private.outbox`. An event of the old tables keeps its id and its creation time. */
function toEvent({ id, headers, aggregateType, aggregateId, tenantId, payload, createdAt }) {
  return {
    event_id: headers.event_id ?? id,
    table_name: aggregateType,
    record_id: aggregateId,
    event_type: payload.event,
    organization_id: tenantId,
    payload: payload.record,
    created_at: headers.created_at ?? createdAt.toISOString(),
  };
}
