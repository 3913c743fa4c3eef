// Sends one test message to one endpoint without the queue. It uses the code of a delivery, including signature and
// network guard, and records nothing.

import { randomUUID } from 'node:crypto';

import type { EndpointRow } from './database.js';
import { ClaimedMessage, column } from '../../core/claimed-message.js';
import { soundOutcome } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import type { SecretKey } from '../../core/sealed-secret.js';
import { endpointWebhook } from './destination.js';
import type { ResolvedEndpointOptions } from './options.js';

export const testTopic = 'waybill.test';

export type EndpointTest = { messageId: string; outcome: Outcome; ms: number };

export async function testEndpoint(
  row: EndpointRow,
  keys: readonly SecretKey[],
  options: ResolvedEndpointOptions,
): Promise<EndpointTest> {
  const message = testMessage(row.name);
  const webhook = endpointWebhook(row, keys, {
    ...options,
    shared: { ...options.shared, keepResponses: 'all' },
  });
  await webhook.open?.();
  const startedMs = performance.now();
  try {
    const signal = AbortSignal.timeout(webhook.settings.timeoutMs);
    const outcome = soundOutcome(await webhook.deliver(message, { signal }));
    return { messageId: message.id, outcome, ms: Math.round(performance.now() - startedMs) };
  } finally {
    await webhook.close?.();
  }
}

function testMessage(endpoint: string): ClaimedMessage {
  const row: (string | null)[] = Object.keys(column).map(() => null);
  const set = (name: keyof typeof column, value: string) => (row[column[name]] = value);
  set('id', randomUUID());
  set('claimNo', '1');
  set('tries', '1');
  set('quarantined', 'f');
  set('createdAt', new Date().toISOString());
  set('namespace', 'default');
  set('topic', testTopic);
  set('payload', JSON.stringify({ test: true, endpoint }));
  return new ClaimedMessage(row);
}
