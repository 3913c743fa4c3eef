// Shadow of a rollout: takes the messages that the destination would get, renders what it would send, and stores that
// for the comparison with the other system. It sends nothing.

import type { Database } from '../../database/connection.js';
import { recordShadow } from './database.js';
import type { Rendered } from './database.js';
import { resolveSettings } from '../../destinations/destination.js';
import type { BatchDestination, Destination } from '../../destinations/destination.js';
import { judgeAll } from '../../destinations/guard.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import type { Judgement } from '../../core/guard.js';
import { delivered } from '../../core/outcome.js';
import { ConfigurationError } from '../../core/errors.js';
import type { SingleRoute } from '../../core/route.js';
import type { RelaySetup } from '../../relay/setup.js';
import type { AddedDestination } from '../in-relay.js';
import type { RolloutRoute } from './route-option.js';

/** Comparisons are kept for 30 days. */
export const comparisonRetention = {
  what: 'shadow comparisons',
  prune: 'prune_shadow_comparisons',
  days: 30,
};

const batchSize = 100;
/** Many tries, because errors while recording are transient. */
const shadowSettings = resolveSettings('shadow', {
  concurrency: 1,
  retry: { maxAttempts: 1000, baseMs: 1000, maxMs: 60_000 },
});

type Rollout = { name: string; to: string };

function rolloutsOf(routes: readonly (SingleRoute & RolloutRoute)[]): Rollout[] {
  const places = new Map(
    routes.flatMap(({ rollout, to }) => (rollout === undefined ? [] : [[rollout, to] as const])),
  );
  return [...places].map(([name, to]) => ({ name, to }));
}

/** The shadow of each rollout of the routes, as a destination. */
export function shadows({
  destinations,
  routes,
}: Pick<RelaySetup, 'destinations' | 'routes'>): AddedDestination[] {
  return rolloutsOf(routes).flatMap(({ name, to }) => {
    const of = destinations[to];
    if (of === undefined) return [];
    const make = (database: Database) => shadowOf(of, name, database);
    return [{ name: shadowName(name), kind: 'shadow', settings: shadowSettings, make }];
  });
}

/** A rollout divides deliveries, which a destination in stream mode does not have; and its shadow needs a free name. */
export function refuseShadowless(
  destinations: Record<string, Destination>,
  routes: readonly (SingleRoute & RolloutRoute)[],
): void {
  for (const { name, to } of rolloutsOf(routes)) {
    if (destinations[to]?.settings.mode === 'stream')
      throw new ConfigurationError(
        `the rollout "${name}" leads to ${to}, whose mode is "stream": use mode "deliver" until the rollout has ended`,
      );
    if (shadowName(name) in destinations)
      throw new ConfigurationError(
        `config.destinations has the name "${shadowName(name)}", which the shadow of the rollout "${name}" needs: choose another`,
      );
  }
}

function shadowName(rollout: string): string {
  return `${rollout}.shadow`;
}

export function shadowOf(
  destination: Destination,
  rollout: string,
  database: Database,
): BatchDestination {
  return {
    kind: 'shadow',
    settings: shadowSettings,
    batchSize,
    keepsOrder: true,
    async deliverBatch(messages) {
      const judgements = await judgeAll(destination, messages);
      const rendered = messages.map((message, index) =>
        render(destination, message, judgements[index]),
      );
      await recordShadow(database, rollout, rendered);
      return messages.map(() => delivered());
    },
  };
}

function render(destination: Destination, message: ClaimedMessage, judgement: Judgement): Rendered {
  const bodyText = destination.render?.(message) ?? message.payloadText;
  const refused = judgement?.kind === 'reject' ? judgement.code : null;
  return {
    reference: message.dedupeKey ?? message.id,
    messageId: message.id,
    bodyText: refused === null ? bodyText : 'null',
    refused,
  };
}
