// Typed events: a schema for each topic. An outbox with these events accepts only messages that fit, at compile time
// and at run time. A destination with a function per event gets each payload with its type.

import type { DeliveryContext, DestinationSettings } from '../../destinations/destination.js';
import type { SingleDestination } from '../../destinations/destination.js';
import { handler } from '../../destinations/handler.js';
import type { Handler } from '../../destinations/handler.js';
import { untilNamed } from '../../destinations/until-named.js';
import { ConfigurationError, shown } from '../../core/errors.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { checkDefinitions } from './event-definitions.js';
import type { DefinedEvents, EventDefinitions, EventPayload } from './event-definitions.js';
import { refuse } from '../../core/options.js';
import { retry } from '../../core/outcome.js';

type Typed<D extends EventDefinitions, Topic extends keyof D & string> = {
  readonly topic: Topic;
  readonly payload: EventPayload<DefinedEvents<D>, Topic>;
};

/** One function for each event that the destination handles. */
export type EventHandlers<D extends EventDefinitions> = {
  readonly [Topic in keyof D & string]?: (
    message: ClaimedMessage & Typed<D, Topic>,
    context: DeliveryContext,
  ) => ReturnType<Handler>;
};

export type Events<D extends EventDefinitions = EventDefinitions> = DefinedEvents<D> & {
  /** A destination with a function per event. A message without a function is retried later. */
  handler(handlers: EventHandlers<D>, settings?: DestinationSettings): SingleDestination;
  /** True for a message of this event; narrows the type of its payload. */
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
      return untilNamed(handler)((message, context) => {
        const handle = byTopic.get(message.topic);
        // retried, not rejected: during a deployment, a relay that knows the event may be about to start
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

/** The handlers by topic, without their payload types: the topic alone decides which one is called. */
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
