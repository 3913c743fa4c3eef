// Metrics in the text format of Prometheus: counters of what this process saw happen, and gauges of how the
// database stands, read when somebody asks. Base units; labels are destinations and states, never ids or tenants.

import type { Gauges } from '../model/gauges.js';
import type { RelayEvent } from './events.js';

const bucketsSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

type Histogram = { buckets: number[]; sum: number; count: number };

export class Metrics {
  #wakeUps = 0;
  #requeues = 0;
  readonly #claims = new Map<string, number>();
  readonly #attempts = new Map<string, Map<string, number>>();
  readonly #durations = new Map<string, Histogram>();

  observe(event: RelayEvent): void {
    if (event.name === 'woken' && event.by === 'doorbell') this.#wakeUps += 1;
    else if (event.name === 'reaped') this.#requeues += event.count;
    else if (event.name === 'claimed')
      this.#claims.set(event.destination, (this.#claims.get(event.destination) ?? 0) + 1);
    else if (event.name === 'settled') this.#settled(event);
  }

  #settled({
    destination,
    counts,
    died,
    latenciesMs,
  }: Extract<RelayEvent, { name: 'settled' }>): void {
    const states = this.#attempts.get(destination) ?? new Map<string, number>();
    this.#attempts.set(destination, states);
    const add = (state: string, count: number) =>
      states.set(state, (states.get(state) ?? 0) + count);
    add('dispatched', counts.delivered);
    add('retryable', counts.retry + counts.reject - died);
    add('failed', died);
    add('released', counts.release + counts.pause);
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

  text({ destinations }: Gauges): string {
    const lines: string[] = [];
    const metric = (name: string, type: string, help: string, samples: readonly string[]) => {
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...samples);
    };
    const by = (name: string, value: (of: Gauges['destinations'][number]) => number | null) =>
      destinations.flatMap((of) => {
        const number = value(of);
        return number === null ? [] : [sample(name, { destination: of.name }, number)];
      });
    metric(
      'outbox_pending_depth',
      'gauge',
      'Deliveries that wait, retrying ones included; counting stops at 100000.',
      by('outbox_pending_depth', ({ pending }) => pending),
    );
    metric(
      'outbox_oldest_pending_age_seconds',
      'gauge',
      'For how long the oldest due delivery has been due.',
      by(
        'outbox_oldest_pending_age_seconds',
        ({ oldestPendingSeconds }) => oldestPendingSeconds ?? 0,
      ),
    );
    metric(
      'outbox_dlq_depth',
      'gauge',
      'Dead letters; counting stops at 100000.',
      by('outbox_dlq_depth', ({ dead }) => dead),
    );
    metric(
      'outbox_stuck_dispatching',
      'gauge',
      'Deliveries held under a lease that ended more than a minute ago.',
      by('outbox_stuck_dispatching', ({ stuck }) => stuck),
    );
    metric(
      'outbox_notify_wakeups_total',
      'counter',
      'How often a producer rang the doorbell of this relay.',
      [sample('outbox_notify_wakeups_total', {}, this.#wakeUps)],
    );
    metric(
      'outbox_reaper_requeues_total',
      'counter',
      'Deliveries that this relay gave back in the place of a dead holder.',
      [sample('outbox_reaper_requeues_total', {}, this.#requeues)],
    );
    metric(
      'outbox_claim_batches_total',
      'counter',
      'Claims that brought something.',
      [...this.#claims].map(([destination, count]) =>
        sample('outbox_claim_batches_total', { destination }, count),
      ),
    );
    metric(
      'outbox_attempts_total',
      'counter',
      'Attempts by how they ended.',
      [...this.#attempts].flatMap(([destination, states]) =>
        [...states].map(([state, count]) =>
          sample('outbox_attempts_total', { destination, state }, count),
        ),
      ),
    );
    metric(
      'outbox_dispatch_duration_seconds',
      'histogram',
      'From the start of a delivery to its answer.',
      [...this.#durations].flatMap(([destination, histogram]) =>
        histogramSamples(destination, histogram),
      ),
    );
    return `${lines.join('\n')}\n`;
  }
}

function histogramSamples(destination: string, { buckets, sum, count }: Histogram): string[] {
  const name = 'outbox_dispatch_duration_seconds';
  let below = 0;
  const cumulated = bucketsSeconds.map((bound, place) => {
    below += buckets[place] ?? 0;
    return sample(`${name}_bucket`, { destination, le: String(bound) }, below);
  });
  return [
    ...cumulated,
    sample(`${name}_bucket`, { destination, le: '+Inf' }, count),
    sample(`${name}_sum`, { destination }, sum),
    sample(`${name}_count`, { destination }, count),
  ];
}

/** Names of destinations need no escaping: letters, digits, _ - and . */
function sample(name: string, labels: Record<string, string>, value: number): string {
  const inner = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
  return `${name}${inner.length > 0 ? `{${inner.join(',')}}` : ''} ${value}`;
}
