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
import type { SingleRoute } from '../../core/route.js';

const batchSize = 100;
/** Many tries, because errors while recording are transient. */
export const shadowSettings = resolveSettings('shadow', {
  concurrency: 1,
  retry: { maxAttempts: 1000, baseMs: 1000, maxMs: 60_000 },
});

export type Rollout = { name: string; to: string };

export function rolloutsOf(routes: readonly SingleRoute[]): Rollout[] {
  const places = new Map(
    routes.flatMap(({ rollout, to }) => (rollout === undefined ? [] : [[rollout, to] as const])),
  );
  return [...places].map(([name, to]) => ({ name, to }));
}

/** A configuration with the rollout may not have a destination of this name. */
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
