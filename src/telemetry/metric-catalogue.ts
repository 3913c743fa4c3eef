// Every metric that /metrics serves: its type, its labels, what it means, and the events that it counts. The text
// that Prometheus reads and the table in docs/metrics.md are both made of it.

import type { RelayEvent } from './events.js';

export type Metric = {
  readonly type: 'gauge' | 'counter' | 'histogram';
  readonly labels: readonly string[];
  readonly help: string;
  /** None: it is read from the database when somebody asks. */
  readonly events: readonly RelayEvent['name'][];
};

const stood = { type: 'gauge', labels: ['destination'], events: [] } as const;

export const metricCatalogue = {
  outbox_pending_depth: {
    ...stood,
    help: 'Deliveries that wait, retrying ones included; an estimate above 10000.',
  },
  outbox_retrying_depth: {
    ...stood,
    help: 'Deliveries that wait for another try; an estimate above 10000.',
  },
  outbox_oldest_pending_age_seconds: {
    ...stood,
    help: 'For how long the oldest due delivery has been due, unless its destination is paused.',
  },
  outbox_paused_depth: { ...stood, help: 'Deliveries that wait at a destination that is paused.' },
  outbox_breaker_open_depth: {
    ...stood,
    help: 'Deliveries that wait while a living relay has the circuit breaker of their destination open.',
  },
  outbox_unserved_depth: {
    ...stood,
    help: 'Deliveries that wait, some for more than a minute, where no living relay serves.',
  },
  outbox_dlq_depth: { ...stood, help: 'Dead letters; an estimate above 10000.' },
  outbox_stuck_dispatching: {
    ...stood,
    help: 'Deliveries held under a lease that ended more than a minute ago.',
  },
  outbox_average_delivery_seconds: {
    type: 'gauge',
    labels: [],
    events: [],
    help: 'From creation to delivery, the average of the last 5 minutes; absent if nothing was delivered.',
  },
  outbox_partitions_ahead: {
    type: 'gauge',
    labels: [],
    events: [],
    help: 'Days from today for which partitions exist.',
  },
  outbox_replica_usable: {
    type: 'gauge',
    labels: [],
    events: [],
    help: '1 while what only reads is answered by the replica, 0 while it is not; absent without one.',
  },
  outbox_replica_lag_seconds: {
    type: 'gauge',
    labels: [],
    events: [],
    help: 'The replica has everything that was committed so long ago; absent if that is not known.',
  },
  outbox_replica_fallbacks_total: {
    type: 'counter',
    labels: [],
    events: [],
    help: 'Answers of the primary in the place of the replica; absent without one.',
  },
  outbox_database_up: {
    type: 'gauge',
    labels: [],
    events: [],
    help: '1 if the database answered just now, 0 if not: then the other gauges of it are absent.',
  },
  outbox_build_info: {
    type: 'gauge',
    labels: ['version'],
    events: [],
    help: 'Always 1; the version of this relay is its label.',
  },
  outbox_notify_wakeups_total: {
    type: 'counter',
    labels: [],
    events: ['woken'],
    help: 'How often a producer rang the doorbell of this relay.',
  },
  outbox_reaper_requeues_total: {
    type: 'counter',
    labels: [],
    events: ['reaped'],
    help: 'Deliveries that this relay gave back in the place of a dead holder.',
  },
  outbox_claim_batches_total: {
    type: 'counter',
    labels: ['destination'],
    events: ['claimed'],
    help: 'Claims that brought something.',
  },
  outbox_attempts_total: {
    type: 'counter',
    labels: ['destination', 'state'],
    events: ['settled'],
    help: 'Attempts by how they ended.',
  },
  outbox_dispatch_duration_seconds: {
    type: 'histogram',
    labels: ['destination'],
    events: ['settled'],
    help: 'From the start of a delivery to its answer.',
  },
} as const satisfies Record<string, Metric>;

export type MetricName = keyof typeof metricCatalogue;
