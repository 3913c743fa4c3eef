// Remedies of alerts on the page: what to do about each, as links to screens and buttons that act. The command line and
// the alert webhook have the remedies of the database instead, which name commands.

import { post } from '../../api.js';
import type { IconName } from '../../parts/icon.js';
import { linkTo } from '../../route.js';
import type { RetryFailed } from '../retry-failed.js';

export type Remedy = {
  /** What to do, if it cannot be done on the page. */
  hint?: string;
  links: readonly { label: string; to: string }[];
  action?: RemedyAction;
};

export type RemedyAction = {
  label: string;
  icon: IconName;
  /** Asked before it is done, if it concerns many deliveries. */
  question?: string;
  act: (retryFailed: RetryFailed) => Promise<unknown>;
};

/** A list that has only this destination says so, because the sentence of the alert may count others. */
const labelOf = (what: string, destination: string | null): string =>
  destination === null ? `Show ${what}` : `Show ${what} of ${destination}`;

const messages = (status: string) => (destination: string | null) => ({
  label: labelOf('messages', destination),
  to: linkTo('messages', { status, destination }),
});
const pending = messages('pending');
const retrying = messages('retrying');
const destinations = { label: 'Show destinations', to: linkTo('destinations') };
const relays = { label: 'Show relays', to: linkTo('relays') };
const database = { label: 'Show database', to: linkTo('database') };

const resume = (destination: string): RemedyAction => ({
  label: `Resume ${destination}`,
  icon: 'play',
  act: () => post(`destinations/${encodeURIComponent(destination)}/resume`),
});

const retryNow = (destination: string | null): RemedyAction => ({
  label: 'Retry now',
  icon: 'retry',
  question: `All deliveries that wait for a retry at ${destination ?? 'any destination'} become due now. Dead letters are not changed.`,
  act: (retryFailed) => retryFailed(destination === null ? {} : { destination }),
});

/** By the name of the alert, for the destination that it affects most. */
const remedies: Record<string, (destination: string | null) => Remedy> = {
  waiting: (at) => ({
    hint: 'Run more relays, or raise the concurrency of the destination.',
    links: [pending(at), destinations, relays],
  }),
  oldest_waiting_seconds: (at) => ({
    hint: 'A relay must run that serves the destination.',
    links: [pending(at), relays],
  }),
  average_delivery_seconds: () => ({
    hint: 'Look for a slow destination, or for a backlog.',
    links: [destinations],
  }),
  retrying: (at) => ({ links: [retrying(at)], action: retryNow(at) }),
  retry_share: (at) => ({ links: [retrying(at), destinations], action: retryNow(at) }),
  dead_growth: (at) => ({ links: [deadLetters(at)] }),
  dead_share: (at) => ({ links: [deadLetters(at)] }),
  stuck_dispatching: () => ({ hint: 'Start a relay: it requeues them.', links: [relays] }),
  clock_ahead: () => ({
    hint: 'Relays correct the times. Find out why the clock was wrong.',
    links: [database],
  }),
  no_relay: (at) => ({
    hint: 'Start a relay whose configuration has the destination.',
    links: [relays, pending(at)],
  }),
  breaker_open: (at) => ({
    hint: 'Repair the destination: deliveries continue by themselves.',
    links: [destinations, retrying(at)],
  }),
  paused_waiting: (at) => ({
    links: [pending(at), destinations],
    ...(at !== null && { action: resume(at) }),
  }),
  unrouted: () => ({
    hint: 'Add a route for their topics, or discard them.',
    links: [messages('unrouted')(null)],
  }),
  stalled_cursors: () => ({
    hint: 'Start a reader, or delete a cursor that is not needed.',
    links: [destinations],
  }),
  partitions_ahead: () => ({
    hint: 'A relay makes them while it runs.',
    links: [database, relays],
  }),
};

function deadLetters(destination: string | null) {
  return {
    label: labelOf('dead letters', destination),
    to: linkTo('dead-letters', { destination }),
  };
}

export function remedyOf(alert: string, destination: string | null): Remedy {
  return remedies[alert]?.(destination) ?? { links: [] };
}

/** By the metric of the health view. */
const linksOfAlarms: Record<string, Remedy['links']> = {
  paused: [destinations],
  open_breakers: [destinations],
  unrouted: [messages('unrouted')(null)],
  stalled_cursors: [destinations],
  oldest_waiting_seconds: [pending(null), relays],
  misdated: [pending(null), relays],
  partition_days_ahead: [database, relays],
  relay_problems: [relays],
  unexported_heads: [{ label: 'Show audit', to: linkTo('audit') }],
};

/** Alarms that an alert which fires says too. */
const saidBy: Record<string, string> = {
  unrouted: 'unrouted',
  oldest_waiting_seconds: 'oldest_waiting_seconds',
  misdated: 'clock_ahead',
  partition_days_ahead: 'partitions_ahead',
};

export type Alarm = { metric: string; alarm: string };

/** The alarms that no firing alert says, without the commands of their remedies, and with links. */
export function shownAlarms(alarms: readonly Alarm[], firing: readonly { alert: string }[]) {
  const said = new Set(firing.map(({ alert }) => alert));
  return alarms
    .filter(({ metric }) => !said.has(saidBy[metric] ?? ''))
    .map(({ metric, alarm }) => ({
      metric,
      // a problem that a relay reports is shown whole: it may name a command that has no button
      text: metric === 'relay_problems' ? alarm : withoutCommands(alarm),
      links: linksOfAlarms[metric] ?? [],
    }));
}

/** An alarm is `what: which: remedy`; a remedy with a command is left out. */
function withoutCommands(alarm: string): string {
  const parts = alarm.split(': ').filter((part) => !/\bwaybill [a-z]/.test(part));
  return parts.length === 0 ? alarm : parts.join(': ');
}
