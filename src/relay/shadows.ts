// The shadow of a rollout: takes the messages that the destination would get, renders what it would send, and keeps
// that for the comparison with what the other system sent. Nothing leaves the relay.

import type { Database } from '../database/connection.js';
import { recordShadow } from '../database/rollouts.js';
import type { Rendered } from '../database/rollouts.js';
import { resolveSettings } from '../destinations/destination.js';
import type { BatchDestination, Destination } from '../destinations/destination.js';
import { judgeAll } from '../destinations/guard.js';
import type { ClaimedMessage } from '../model/claimed-message.js';
import type { Judgement } from '../model/guard.js';
import { delivered } from '../model/outcome.js';
import type { Route } from '../model/route.js';

const batchSize = 100;
/** What keeps it from recording passes: it goes on trying. */
export const shadowSettings = resolveSettings('shadow', {
  concurrency: 1,
  retry: { maxAttempts: 1000, baseMs: 1000, maxMs: 60_000 },
});

export type Rollout = { name: string; to: string };

export function rolloutsOf(routes: readonly Route[]): Rollout[] {
  const places = new Map(
    routes.flatMap(({ rollout, to }) => (rollout === undefined ? [] : [[rollout, to] as const])),
  );
  return [...places].map(([name, to]) => ({ name, to }));
}

/** No destination of a configuration that has the rollout may be called so. */
export function shadowName(rollout: string): string {
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
