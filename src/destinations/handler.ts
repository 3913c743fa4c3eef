// Handler: uses a plain function as a destination. The function returns nothing on success, or an outcome; if it
// throws, the message is retried.

import type { ClaimedMessage } from '../core/claimed-message.js';
import { checkOptions, integer, refuse } from '../core/options.js';
import { delivered, soundOutcome } from '../core/outcome.js';
import { isThenable } from '../core/thenable.js';
import type { Outcome } from '../core/outcome.js';
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

/** Takes up to `batchSize` messages (default 100) in one call; if it returns nothing, all were delivered. */
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
    // the author of the function sees the order and handles it
    keepsOrder: true,
    async deliverBatch(messages, context) {
      const outcomes = await handle(messages, context);
      return outcomes ?? messages.map(() => delivered());
    },
  };
}

function asOutcome(result: unknown): Outcome {
  // a return value that is not an outcome is ignored
  if (typeof result !== 'object' || result === null || !('kind' in result)) return delivered();
  return soundOutcome(result);
}
