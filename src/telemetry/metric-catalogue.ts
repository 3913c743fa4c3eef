// Metric catalogue: every metric of /metrics with its type, labels, meaning, and the events that it counts. The
// Prometheus text and the table in docs/reference/metrics.md are generated from it.

import type { RelayEvent } from './events.js';

export type Metric = {
  readonly type: 'gauge' | 'counter' | 'histogram';
  readonly labels: readonly string[];
  readonly help: string;
  /** Empty if the metric is read from the database on request. */
  readonly events: readonly RelayEvent['name'][];
};

const destinationGauge = { type: 'gauge', labels: ['destination'], events: [] } as const;

export const metricCatalogue = {
  outbox_pending_depth: {
    ...destinationGauge,
    help: 'Pending deliveries, retrying ones included; an estimate above 10000.',
  },
  outbox_retrying_depth: {
    ...destinationGauge,
    help: 'Deliveries that wait for another try; an estimate above 10000.',
  },
  outbox_oldest_pending_age_seconds: {
    ...destinationGauge,
    help: 'For how long the oldest due delivery has been due, unless its destination is paused.',
  },
  outbox_paused_depth: { ...destinationGauge, help: 'Pending deliveries at paused destinations.' },
  outbox_breaker_open_depth: {
    ...destinationGauge,
    help: 'Pending deliveries at destinations whose circuit breaker is open at a living relay.',
  },
  outbox_unserved_depth: {
    ...destinationGauge,
    help: 'Pending deliveries at destinations that no living relay serves, if the oldest has been due for more than a minute.',
  },
  outbox_dlq_depth: { ...destinationGauge, help: 'Dead letters; an estimate above 10000.' },
  outbox_stuck_dispatching: {
    ...destinationGauge,
    help: 'Deliveries whose lease expired more than a minute ago.',
  },
  outbox_misdated_depth: {
    ...destinationGauge,
    help: 'Misdated deliveries and keys: they wait only because the clock of the database ran ahead.',
  },
  outbox_delivery_rate: {
    ...destinationGauge,
    help: 'Delivery rate: of the deliveries that ended in the last 5 minutes, the share that was delivered after any number of tries (0 to 1); absent if none ended.',
  },
  outbox_success_rate: {
    ...destinationGauge,
    help: 'Success rate: of the single tries of the last 5 minutes, the share that succeeded (0 to 1); absent if there were none.',
  },
  outbox_average_delivery_seconds: {
    type: 'gauge',
    labels: [],
    events: [],
    help: 'From creation to delivery, the average of the last 5 minutes; absent if nothing was delivered.',
  },
  outbox_unrouted_messages: {
    type: 'gauge',
    labels: [],
    events: [],
    help: 'Messages without a route, kept until they are routed or discarded; at most 10000 are counted.',
  },
  outbox_stalled_cursors: {
    type: 'gauge',
    labels: [],
    events: [],
    help: 'Cursors with unread messages that are older than 15 minutes, which have not moved for as long: no reader, or one that does not get on.',
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
    help: '1 while the replica answers requests that only read, 0 while it does not; absent without a replica.',
  },
  outbox_replica_lag_seconds: {
    type: 'gauge',
    labels: [],
    events: [],
    help: 'How far the replica is behind the primary; absent if that is unknown.',
  },
  outbox_replica_fallbacks_total: {
    type: 'counter',
    labels: [],
    events: [],
    help: 'Requests that the primary answered in place of the replica; absent without a replica.',
  },
  outbox_database_up: {
    type: 'gauge',
    labels: [],
    events: [],
    help: '1 if the database answered just now, 0 if not; then the other database gauges are absent.',
  },
  outbox_relay_asleep: {
    type: 'gauge',
    labels: [],
    events: [],
    help: '1 while the relay is asleep (relay.sleep): then all other metrics are absent.',
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
    help: 'How often a notification of a producer woke this relay.',
  },
  outbox_misdated_released_total: {
    type: 'counter',
    labels: [],
    events: ['misdated_released'],
    help: 'Misdated deliveries and keys that were released.',
  },
  outbox_reaper_requeues_total: {
    type: 'counter',
    labels: [],
    events: ['zombies_requeued'],
    help: 'Zombie requeues: deliveries whose expired lease this relay ended.',
  },
  outbox_claim_batches_total: {
    type: 'counter',
    labels: ['destination'],
    events: ['claimed'],
    help: 'Claims that returned at least one delivery.',
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
