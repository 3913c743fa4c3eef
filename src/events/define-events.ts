// Typed events: a schema for each topic. An outbox with these events takes only what fits them, for the compiler and
// at run time; a destination with one function for each event gives each of them its own type. Without schemas
// everything is as it was.

import type { DeliveryContext, DestinationSettings } from '../destinations/destination.js';
import type { SingleDestination } from '../destinations/destination.js';
import { handler } from '../destinations/handler.js';
import type { Handler } from '../destinations/handler.js';
import { ConfigurationError, shown } from '../errors.js';
import type { ClaimedMessage } from '../model/claimed-message.js';
import { checkDefinitions } from '../model/event-definitions.js';
import type { DefinedEvents, EventDefinitions, EventPayload } from '../model/event-definitions.js';
import { refuse } from '../model/options.js';
import { retry } from '../model/outcome.js';

type Typed<D extends EventDefinitions, Topic extends keyof D & string> = {
  readonly topic: Topic;
  readonly payload: EventPayload<DefinedEvents<D>, Topic>;
};

/** One function for each event that the destination takes. */
export type EventHandlers<D extends EventDefinitions> = {
  readonly [Topic in keyof D & string]?: (
    message: ClaimedMessage & Typed<D, Topic>,
    context: DeliveryContext,
  ) => ReturnType<Handler>;
};

export type Events<D extends EventDefinitions = EventDefinitions> = DefinedEvents<D> & {
  /** A destination with a function for each event. A message that none of them is for is tried again later. */
  handler(handlers: EventHandlers<D>, settings?: DestinationSettings): SingleDestination;
  /** True for a message of this event; the compiler then knows the type of its payload. */
  is<Topic extends keyof D & string, M extends { readonly topic: string }>(
    message: M,
    topic: Topic,
  ): message is M & Typed<D, Topic>;
};

export function defineEvents<D extends EventDefinitions>(definitions: D): Events<D> {
  const checked = checkDefinitions(definitions);
  return {
    definitions: checked,
    handler(handlers, settings) {
      const byTopic = checkHandlers(handlers, checked);
      return handler((message, context) => {
        const handle = byTopic.get(message.topic);
        // retried, not refused: during a deployment the relay that knows it may be starting just now
        return handle === undefined ? noHandler(message.topic) : handle(message, context);
      }, settings);
    },
    is<Topic extends keyof D & string, M extends { readonly topic: string }>(
      message: M,
      topic: Topic,
    ): message is M & Typed<D, Topic> {
      return message.topic === topic;
    },
  };
}

function noHandler(topic: string) {
  return retry({
    code: 'no_handler',
    message: `events.handler has no function for ${topic}: add one, or take it out of this destination's routes`,
  });
}

/** As functions of whatever message: which one gets which is decided by the topic alone. */
function checkHandlers(handlers: object, definitions: EventDefinitions): Map<string, Handler> {
  if (typeof handlers !== 'object' || handlers === null)
    refuse(
      'events.handler',
      handlers,
      "give an object such as { 'user.registered': (message) => … }",
    );
  const topics = Object.keys(definitions);
  for (const [topic, handle] of Object.entries(handlers)) {
    if (!Object.hasOwn(definitions, topic)) {
      throw new ConfigurationError(
        `events.handler has a function for ${shown(topic)}, which is not one of the events: use ${topics.join(', ')}`,
      );
    }
    if (typeof handle !== 'function')
      refuse(
        `events.handler[${JSON.stringify(topic)}]`,
        handle,
        'give a function (message, context) => …',
      );
  }
  return new Map(Object.entries(handlers as Record<string, Handler>));
}
