// The metrics as Prometheus reads them.

import { expect, it } from 'vitest';

import { Metrics } from '../../src/telemetry/metrics.js';

const noCounts = { delivered: 0, retry: 0, reject: 0, pause: 0, release: 0 };

function valuesOf(text: string): Map<string, number> {
  const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    samples.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]),
  );
}

it('P14 counts what the relay does, by destination and state', () => {
  const metrics = new Metrics();
  metrics.observe({ name: 'woken', by: 'doorbell' });
  metrics.observe({ name: 'woken', by: 'poll' });
  metrics.observe({ name: 'reaped', count: 3 });
  metrics.observe({ name: 'claimed', destination: 'crm', count: 7, ms: 1 });
  const counts = { ...noCounts, delivered: 5, retry: 3, reject: 1, release: 2, pause: 1 };
  // of the four that failed, one was refused and one had no try left
  metrics.observe({ name: 'settled', destination: 'crm', counts, died: 2, latenciesMs: [], ms: 1 });
  metrics.observe({ name: 'settled', destination: 'crm', counts, died: 2, latenciesMs: [], ms: 1 });
  const values = valuesOf(metrics.text({ destinations: [] }));
  expect(Object.fromEntries([...values].filter(([name]) => !name.includes('duration')))).toEqual({
    outbox_notify_wakeups_total: 1,
    outbox_reaper_requeues_total: 3,
    'outbox_claim_batches_total{destination="crm"}': 1,
    'outbox_attempts_total{destination="crm",state="dispatched"}': 10,
    'outbox_attempts_total{destination="crm",state="retryable"}': 4,
    'outbox_attempts_total{destination="crm",state="failed"}': 4,
    'outbox_attempts_total{destination="crm",state="released"}': 6,
  });
});

it('P14 durations are a histogram in seconds, cumulative, with everything in +Inf', () => {
  const metrics = new Metrics();
  const latenciesMs = [1, 5, 6, 90, 40_000];
  metrics.observe({
    name: 'settled',
    destination: 'crm',
    counts: noCounts,
    died: 0,
    latenciesMs,
    ms: 1,
  });
  const values = valuesOf(metrics.text({ destinations: [] }));
  const bucket = (le: string) =>
    values.get(`outbox_dispatch_duration_seconds_bucket{destination="crm",le="${le}"}`);
  expect(['0.005', '0.01', '0.05', '0.1', '30', '+Inf'].map(bucket)).toEqual([2, 3, 3, 4, 4, 5]);
  expect(values.get('outbox_dispatch_duration_seconds_count{destination="crm"}')).toBe(5);
  expect(values.get('outbox_dispatch_duration_seconds_sum{destination="crm"}')).toBeCloseTo(40.102);
});

it('P14 gauges are those of the database, and an empty queue is not old', () => {
  const text = new Metrics().text({
    destinations: [
      { name: 'crm', pending: 4, oldestPendingSeconds: 1.5, dead: 2, stuck: 1 },
      { name: 'mail.v2', pending: 0, oldestPendingSeconds: null, dead: 0, stuck: 0 },
    ],
  });
  expect(valuesOf(text).get('outbox_pending_depth{destination="crm"}')).toBe(4);
  expect(valuesOf(text).get('outbox_oldest_pending_age_seconds{destination="mail.v2"}')).toBe(0);
  expect(valuesOf(text).get('outbox_oldest_pending_age_seconds{destination="crm"}')).toBe(1.5);
  expect(valuesOf(text).get('outbox_dlq_depth{destination="crm"}')).toBe(2);
  expect(valuesOf(text).get('outbox_stuck_dispatching{destination="crm"}')).toBe(1);
});
