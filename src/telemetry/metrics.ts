// Metrics in the Prometheus text format: counters of this process, and gauges of the database, read on request.
// Values are in base units. Labels are destinations and states, never ids or tenants. All endpoints share one label,
// because there may be thousands of them. With several databases, every sample has the label `shard`.

import { endpointsLabel } from './gauges.js';
import type { Gauges } from './gauges.js';
import { version } from '../core/version.js';
import type { RelayEvent } from './events.js';
import { metricCatalogue } from './metric-catalogue.js';
import type { MetricName } from './metric-catalogue.js';

const bucketsSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

type Samples = readonly (readonly [labels: Record<string, string>, value: number])[];
type Histogram = { buckets: number[]; sum: number; count: number };

export class Metrics {
  #wakeUps = 0;
  #requeues = 0;
  #misdated = 0;
  readonly #claims = new Map<string, number>();
  readonly #attempts = new Map<string, Map<string, number>>();
  readonly #durations = new Map<string, Histogram>();
  readonly #known: ReadonlySet<string> | undefined;
  readonly #shard: Record<string, string>;

  /**
   * `destinations`: the names of the configuration; all others count as endpoints. Without it, each is labelled by
   * its name.
   */
  constructor({ destinations, shard }: { destinations?: readonly string[]; shard?: string } = {}) {
    this.#known = destinations && new Set(destinations);
    this.#shard = shard === undefined ? {} : { shard };
  }

  #label(destination: string): string {
    return this.#known?.has(destination) === false ? endpointsLabel : destination;
  }

  observe(event: RelayEvent): void {
    if (event.name === 'woken' && event.by === 'notification') this.#wakeUps += 1;
    else if (event.name === 'zombies_requeued') this.#requeues += event.count;
    else if (event.name === 'misdated_released') this.#misdated += event.count;
    else if (event.name === 'claimed') {
      const label = this.#label(event.destination);
      this.#claims.set(label, (this.#claims.get(label) ?? 0) + 1);
    } else if (event.name === 'settled') this.#settled(event);
  }

  #settled({
    destination: name,
    counts,
    died,
    latenciesMs,
  }: Extract<RelayEvent, { name: 'settled' }>): void {
    const destination = this.#label(name);
    const states = this.#attempts.get(destination) ?? new Map<string, number>();
    this.#attempts.set(destination, states);
    const add = (state: string, count: number) =>
      states.set(state, (states.get(state) ?? 0) + count);
    add('dispatched', counts.delivered);
    add('retryable', counts.retry + counts.reject - died);
    add('failed', died);
    add('released', counts.release + counts.pause);
    if (counts.discard > 0) add('discarded', counts.discard);
    const histogram = this.#durations.get(destination) ?? {
      buckets: bucketsSeconds.map(() => 0),
      sum: 0,
      count: 0,
    };
    this.#durations.set(destination, histogram);
    for (const ms of latenciesMs) {
      const seconds = ms / 1000;
      histogram.sum += seconds;
      histogram.count += 1;
      const place = bucketsSeconds.findIndex((bound) => seconds <= bound);
      if (place >= 0) histogram.buckets[place] = (histogram.buckets[place] ?? 0) + 1;
    }
  }

  text(gauges: Gauges): string {
    return metricsText([{ metrics: this, gauges }]);
  }

  /** The lines of each metric, without its description. `gauges`: null if the database does not answer. */
  lines(gauges: Gauges | null): Record<MetricName, string[]> {
    const {
      destinations = [],
      averageDeliverySeconds = null,
      partitionsAhead,
      unrouted,
      stalledCursors,
      replica,
    } = gauges ?? {};
    const by = (value: (of: Gauges['destinations'][number]) => number | null): Samples =>
      destinations.flatMap((of): Samples => {
        const known = value(of);
        return known === null ? [] : [[{ destination: of.name }, known]];
      });
    const samples: Record<Exclude<MetricName, 'outbox_dispatch_duration_seconds'>, Samples> = {
      outbox_pending_depth: by(({ pending }) => pending),
      outbox_retrying_depth: by(({ retrying }) => retrying),
      // an empty queue has age 0
      outbox_oldest_pending_age_seconds: by(
        ({ oldestPendingSeconds }) => oldestPendingSeconds ?? 0,
      ),
      outbox_paused_depth: by(({ paused }) => paused),
      outbox_breaker_open_depth: by(({ breakerOpen }) => breakerOpen),
      outbox_unserved_depth: by(({ unserved }) => unserved),
      outbox_dlq_depth: by(({ dead }) => dead),
      outbox_stuck_dispatching: by(({ stuck }) => stuck),
      outbox_misdated_depth: by(({ misdated }) => misdated),
      outbox_delivery_rate: by(({ deliveryRate }) => deliveryRate),
      outbox_success_rate: by(({ successRate }) => successRate),
      outbox_average_delivery_seconds:
        averageDeliverySeconds === null ? [] : [[{}, averageDeliverySeconds]],
      outbox_unrouted_messages: unrouted === undefined ? [] : [[{}, unrouted]],
      outbox_stalled_cursors: stalledCursors === undefined ? [] : [[{}, stalledCursors]],
      outbox_partitions_ahead: partitionsAhead === undefined ? [] : [[{}, partitionsAhead]],
      outbox_database_up: [[{}, gauges === null ? 0 : 1]],
      outbox_relay_asleep: [[{}, 0]],
      outbox_replica_usable: replica === undefined ? [] : [[{}, Number(replica.usable)]],
      outbox_replica_lag_seconds:
        replica === undefined || replica.lagSeconds === null ? [] : [[{}, replica.lagSeconds]],
      outbox_replica_fallbacks_total: replica === undefined ? [] : [[{}, replica.fallbacks]],
      outbox_build_info: [[{ version }, 1]],
      outbox_notify_wakeups_total: [[{}, this.#wakeUps]],
      outbox_misdated_released_total: [[{}, this.#misdated]],
      outbox_reaper_requeues_total: [[{}, this.#requeues]],
      outbox_claim_batches_total: [...this.#claims].map(([destination, count]) => [
        { destination },
        count,
      ]),
      outbox_attempts_total: [...this.#attempts].flatMap(([destination, states]) =>
        [...states].map(([state, count]): Samples[number] => [{ destination, state }, count]),
      ),
    };
    const line = (name: string, labels: Record<string, string>, value: number) =>
      sample(name, { ...this.#shard, ...labels }, value);
    const plain = Object.entries(samples).map(([name, own]) => [
      name,
      own.map(([labels, value]) => line(name, labels, value)),
    ]);
    const histograms = [...this.#durations].flatMap(([destination, histogram]) =>
      histogramSamples(destination, histogram, line),
    );
    return {
      ...(Object.fromEntries(plain) as Record<keyof typeof samples, string[]>),
      outbox_dispatch_duration_seconds: histograms,
    };
  }
}

/** The metrics of several relays and databases as one text: each metric is described once. */
export function metricsText(parts: readonly { metrics: Metrics; gauges: Gauges | null }[]): string {
  const all = parts.map(({ metrics, gauges }) => metrics.lines(gauges));
  const lines = (Object.keys(metricCatalogue) as MetricName[]).flatMap((name) => {
    const { help, type } = metricCatalogue[name];
    return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...all.flatMap((own) => own[name])];
  });
  return `${lines.join('\n')}\n`;
}

/** The metrics of a relay that is asleep: only that it is. */
export function asleepText(): string {
  const { help, type } = metricCatalogue.outbox_relay_asleep;
  return [
    `# HELP outbox_relay_asleep ${help}`,
    `# TYPE outbox_relay_asleep ${type}`,
    `${sample('outbox_relay_asleep', {}, 1)}\n`,
  ].join('\n');
}

function histogramSamples(
  destination: string,
  { buckets, sum, count }: Histogram,
  line: typeof sample,
): string[] {
  const name = 'outbox_dispatch_duration_seconds';
  let below = 0;
  const cumulated = bucketsSeconds.map((bound, place) => {
    below += buckets[place] ?? 0;
    return line(`${name}_bucket`, { destination, le: String(bound) }, below);
  });
  return [
    ...cumulated,
    line(`${name}_bucket`, { destination, le: '+Inf' }, count),
    line(`${name}_sum`, { destination }, sum),
    line(`${name}_count`, { destination }, count),
  ];
}

/** Labels need no escaping: destination names and versions contain only letters, digits, _ - . + and parentheses. */
function sample(name: string, labels: Record<string, string>, value: number): string {
  const inner = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
  return `${name}${inner.length > 0 ? `{${inner.join(',')}}` : ''} ${value}`;
}
