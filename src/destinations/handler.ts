// A plain function as a destination. It returns nothing when all is well, or an outcome; a throw means retry.

import type { ClaimedMessage } from '../model/claimed-message.js';
import { checkOptions, integer, refuse } from '../model/options.js';
import { delivered, soundOutcome } from '../model/outcome.js';
import { isThenable } from '../model/thenable.js';
import type { Outcome } from '../model/outcome.js';
import { resolveSettings, settingKinds } from './destination.js';
import type {
  BatchDestination,
  DeliveryContext,
  DestinationSettings,
  SingleDestination,
} from './destination.js';

type Result = Outcome | undefined | void;

export type Handler = (
  message: ClaimedMessage,
  context: DeliveryContext,
) => Promise<Result> | Result;

export type BatchHandler = (
  messages: readonly ClaimedMessage[],
  context: DeliveryContext,
) => Promise<readonly Outcome[] | undefined | void>;

export function handler(handle: Handler, settings?: DestinationSettings): SingleDestination {
  if (typeof handle !== 'function')
    refuse('handler', handle, 'give a function (message, context) => …');
  return {
    kind: 'handler',
    settings: resolveSettings('handler', settings),
    deliver(message, context) {
      const result = handle(message, context);
      return isThenable(result) ? Promise.resolve(result).then(asOutcome) : asOutcome(result);
    },
  };
}

/** Takes up to `batchSize` messages (default 100) in one call; no answer means that all were delivered. */
export function batchHandler(
  handle: BatchHandler,
  { batchSize, ...settings }: DestinationSettings & { batchSize?: number } = {},
): BatchDestination {
  if (typeof handle !== 'function')
    refuse('batchHandler', handle, 'give a function (messages, context) => …');
  const checked = checkOptions(
    'batchHandler',
    { batchSize, ...settings },
    {
      ...settingKinds,
      batchSize: integer({ min: 1, max: 10_000, default: 100 }),
    },
  );
  return {
    kind: 'handler',
    settings: checked,
    batchSize: checked.batchSize,
    // its author sees the order, and decides
    keepsOrder: true,
    async deliverBatch(messages, context) {
      const outcomes = await handle(messages, context);
      return outcomes ?? messages.map(() => delivered());
    },
  };
}

function asOutcome(result: unknown): Outcome {
  // whatever a function happens to return is not an outcome, and not a failure either
  if (typeof result !== 'object' || result === null || !('kind' in result)) return delivered();
  return soundOutcome(result);
}
