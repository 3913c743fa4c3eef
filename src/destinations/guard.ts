// Puts a guard in front of a destination: messages that the guard refuses never reach it. Of a batch, only the allowed
// messages are sent.

import type { ClaimedMessage } from '../core/claimed-message.js';
import { guardLimitMs, judge } from '../core/guard.js';
import type { Guard, Judgement } from '../core/guard.js';
import { TurnBudget } from '../core/turn-budget.js';
import { outcomesMissing, retry, thrown } from '../core/outcome.js';
import type { Outcome } from '../core/outcome.js';
import { isThenable } from '../core/thenable.js';
import type { BatchDestination, DeliveryContext, Destination } from './destination.js';

/** Guards check large payloads, and a claim has many messages: they share the loop with everything else. */
const turn = new TurnBudget(10);

/** Returns the destination itself if it has no guard. */
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
      const judgement = judgeInTurn(guard, message, limitMs);
      if (!isThenable(judgement)) return judgement ?? destination.deliver(message, context);
      return Promise.resolve(judgement).then((judged) => {
        if (judged !== undefined) return judged;
        return context.signal.aborted ? tooLate() : destination.deliver(message, context);
      });
    },
  };
}

/** Refused messages stay refused, whatever happens to the others. */
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

/** The guard's refusal for each message, or undefined if it may be sent or if there is no guard. */
export async function judgeAll(
  { settings }: Destination,
  messages: readonly ClaimedMessage[],
): Promise<readonly Judgement[]> {
  const { guard, timeoutMs } = settings;
  if (guard === undefined) return messages.map(() => undefined);
  const limitMs = guardLimitMs(timeoutMs);
  return Promise.all(messages.map(async (message) => judgeInTurn(guard, message, limitMs)));
}

function judgeInTurn(
  guard: Guard,
  message: ClaimedMessage,
  limitMs: number,
): Judgement | Promise<Judgement> {
  const judgeNow = () => turn.spend(() => judge(guard, message, limitMs));
  return turn.isUsedUp ? turn.wait().then(judgeNow) : judgeNow();
}

/** The call has ended meanwhile, so its outcome would be ignored. */
function tooLate(): Outcome {
  return retry({ code: 'stopped', message: 'the call ended before the guard had answered' });
}
