// The metrics in the format that Prometheus reads.

import { expect, it } from 'vitest';

import { Metrics } from '../../src/telemetry/metrics.js';

const noCounts = { delivered: 0, retry: 0, reject: 0, pause: 0, release: 0, discard: 0 };

const nothing = {
  destinations: [],
  averageDeliverySeconds: null,
  partitionsAhead: 60,
  unrouted: 0,
  stalledCursors: 0,
};

function valuesOf(text: string): Map<string, number> {
  const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    samples.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]),
  );
}

it('P14 counts the work of the relay by destination and state', () => {
  const metrics = new Metrics();
  metrics.observe({ name: 'woken', by: 'notification' });
  metrics.observe({ name: 'woken', by: 'poll' });
  metrics.observe({ name: 'zombies_requeued', count: 3 });
  metrics.observe({ name: 'misdated_released', count: 2 });
  metrics.observe({ name: 'claimed', destination: 'crm', count: 7, ms: 1 });
  const counts = {
    ...noCounts,
    delivered: 5,
    retry: 3,
    reject: 1,
    release: 2,
    pause: 1,
    discard: 2,
  };
  // of the four that failed, one was rejected and one had no try left
  metrics.observe({ name: 'settled', destination: 'crm', counts, died: 2, latenciesMs: [], ms: 1 });
  metrics.observe({ name: 'settled', destination: 'crm', counts, died: 2, latenciesMs: [], ms: 1 });
  const values = valuesOf(metrics.text(nothing));
  const counters = [...values].filter(([name]) => /_total/.test(name));
  expect(Object.fromEntries(counters)).toEqual({
    outbox_notify_wakeups_total: 1,
    outbox_reaper_requeues_total: 3,
    outbox_misdated_released_total: 2,
    'outbox_claim_batches_total{destination="crm"}': 1,
    'outbox_attempts_total{destination="crm",state="dispatched"}': 10,
    'outbox_attempts_total{destination="crm",state="retryable"}': 4,
    'outbox_attempts_total{destination="crm",state="failed"}': 4,
    'outbox_attempts_total{destination="crm",state="released"}': 6,
    'outbox_attempts_total{destination="crm",state="discarded"}': 4,
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
  const values = valuesOf(metrics.text(nothing));
  const bucket = (le: string) =>
    values.get(`outbox_dispatch_duration_seconds_bucket{destination="crm",le="${le}"}`);
  expect(['0.005', '0.01', '0.05', '0.1', '30', '+Inf'].map(bucket)).toEqual([2, 3, 3, 4, 4, 5]);
  expect(values.get('outbox_dispatch_duration_seconds_count{destination="crm"}')).toBe(5);
  expect(values.get('outbox_dispatch_duration_seconds_sum{destination="crm"}')).toBeCloseTo(40.102);
});

it('P14 gauges come from the database, and an empty queue has age zero', () => {
  const empty = {
    pending: 0,
    retrying: 0,
    oldestPendingSeconds: null,
    dead: 0,
    stuck: 0,
    misdated: 0,
    paused: 0,
    breakerOpen: 0,
    unserved: 0,
    deliveryRate: null,
    successRate: null,
  };
  const text = new Metrics().text({
    destinations: [
      {
        name: 'crm',
        pending: 9,
        retrying: 3,
        oldestPendingSeconds: 1.5,
        dead: 2,
        stuck: 1,
        misdated: 2,
        paused: 4,
        breakerOpen: 5,
        unserved: 6,
        deliveryRate: 0.999,
        successRate: 0.75,
      },
      { ...empty, name: 'mail.v2' },
    ],
    averageDeliverySeconds: 0.25,
    partitionsAhead: 59,
    unrouted: 3,
    stalledCursors: 2,
  });
  const ofCrm = [...valuesOf(text)].filter(([name]) => name.endsWith('{destination="crm"}'));
  expect(Object.fromEntries(ofCrm)).toEqual({
    'outbox_pending_depth{destination="crm"}': 9,
    'outbox_retrying_depth{destination="crm"}': 3,
    'outbox_oldest_pending_age_seconds{destination="crm"}': 1.5,
    'outbox_paused_depth{destination="crm"}': 4,
    'outbox_breaker_open_depth{destination="crm"}': 5,
    'outbox_unserved_depth{destination="crm"}': 6,
    'outbox_dlq_depth{destination="crm"}': 2,
    'outbox_stuck_dispatching{destination="crm"}': 1,
    'outbox_misdated_depth{destination="crm"}': 2,
    'outbox_delivery_rate{destination="crm"}': 0.999,
    'outbox_success_rate{destination="crm"}': 0.75,
  });
  // nothing ended there: no rate is not a rate of 0
  expect([...valuesOf(text).keys()].filter((name) => /_rate.*mail/.test(name))).toEqual([]);
  expect(valuesOf(text).get('outbox_average_delivery_seconds')).toBe(0.25);
  expect(valuesOf(text).get('outbox_partitions_ahead')).toBe(59);
  expect(valuesOf(text).get('outbox_unrouted_messages')).toBe(3);
  expect(valuesOf(text).get('outbox_stalled_cursors')).toBe(2);
  expect(valuesOf(text).get('outbox_oldest_pending_age_seconds{destination="mail.v2"}')).toBe(0);
});

it('P14 labels stay bounded: a destination outside the configuration counts as one of the endpoints', () => {
  const metrics = new Metrics({ destinations: ['crm'] });
  for (const destination of ['crm', 'customer-1', 'customer-2']) {
    metrics.observe({ name: 'claimed', destination, count: 1, ms: 1 });
    const counts = { ...noCounts, delivered: 1 };
    metrics.observe({ name: 'settled', destination, counts, died: 0, latenciesMs: [1], ms: 1 });
  }
  const text = metrics.text(nothing);
  expect(text).not.toContain('customer');
  const values = valuesOf(text);
  expect(values.get('outbox_claim_batches_total{destination="(endpoints)"}')).toBe(2);
  const delivered = 'outbox_attempts_total{destination="(endpoints)",state="dispatched"}';
  expect(values.get(delivered)).toBe(2);
  expect(values.get('outbox_dispatch_duration_seconds_count{destination="(endpoints)"}')).toBe(2);
  expect(values.get('outbox_dispatch_duration_seconds_count{destination="crm"}')).toBe(1);
});
