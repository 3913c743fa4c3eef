// Puts a destination's guard in front of it: what the guard refuses never reaches it. Of a batch, the refused
// ones are taken out and the others go.

import type { ClaimedMessage } from '../model/claimed-message.js';
import { guardLimitMs, judge } from '../model/guard.js';
import type { Judgement } from '../model/guard.js';
import { outcomesMissing, retry, thrown } from '../model/outcome.js';
import type { Outcome } from '../model/outcome.js';
import { isThenable } from '../model/thenable.js';
import type { BatchDestination, DeliveryContext, Destination } from './destination.js';

/** The destination itself if it has no guard. */
export function guarded(destination: Destination): Destination {
  const { kind, settings } = destination;
  const { guard, timeoutMs } = settings;
  if (guard === undefined) return destination;
  const limitMs = guardLimitMs(timeoutMs);
  if ('deliverBatch' in destination) {
    const { batchSize } = destination;
    return {
      kind,
      settings,
      batchSize,
      async deliverBatch(messages, context) {
        const judgements = await judgeAll(destination, messages);
        const allowed = messages.filter((_message, index) => judgements[index] === undefined);
        const outcomes = await deliverAllowed(destination, allowed, context);
        let next = 0;
        return judgements.map((judgement) => judgement ?? (outcomes[next++] as Outcome));
      },
    };
  }
  return {
    kind,
    settings,
    deliver(message, context) {
      const judgement = judge(guard, message, limitMs);
      if (!isThenable(judgement)) return judgement ?? destination.deliver(message, context);
      return Promise.resolve(judgement).then((judged) => {
        if (judged !== undefined) return judged;
        return context.signal.aborted ? tooLate() : destination.deliver(message, context);
      });
    },
  };
}

/** What was refused stays refused, whatever becomes of the others. */
async function deliverAllowed(
  destination: BatchDestination,
  allowed: readonly ClaimedMessage[],
  context: DeliveryContext,
): Promise<readonly Outcome[]> {
  if (allowed.length === 0) return [];
  if (context.signal.aborted) return allowed.map(tooLate);
  try {
    const outcomes: unknown = await destination.deliverBatch(allowed, context);
    if (Array.isArray(outcomes) && outcomes.length === allowed.length) return outcomes as Outcome[];
    const count = Array.isArray(outcomes) ? outcomes.length : 0;
    return allowed.map(() => outcomesMissing(count, allowed.length));
  } catch (error) {
    return allowed.map(() => thrown(error));
  }
}

/** What the guard says of each message; nothing of those that may be sent, and of all if there is no guard. */
export async function judgeAll(
  { settings }: Destination,
  messages: readonly ClaimedMessage[],
): Promise<readonly Judgement[]> {
  const { guard, timeoutMs } = settings;
  if (guard === undefined) return messages.map(() => undefined);
  const limitMs = guardLimitMs(timeoutMs);
  return Promise.all(messages.map(async (message) => judge(guard, message, limitMs)));
}

/** Its call has ended meanwhile, and nobody would hear how it went. */
function tooLate(): Outcome {
  return retry({ code: 'stopped', message: 'the call ended before the guard had answered' });
}
