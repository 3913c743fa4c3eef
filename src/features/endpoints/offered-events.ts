// Events that customers can choose for an endpoint: the typed events of the configuration, as their schemas describe
// them.

import { isWithin } from '../../core/route.js';
import type { DefinedEvents } from '../../producer/events/event-definitions.js';
import { exampleOf } from '../../producer/events/example.js';
import { jsonSchemaOf } from '../../producer/events/json-schema.js';
import type { JsonSchema } from '../../producer/events/json-schema.js';

export type OfferedEvent = {
  topic: string;
  /** The `description` of its schema. */
  description: string | null;
  /** The first of the `examples` of its schema, or one made from it; undefined if the schema cannot be described. */
  example?: unknown;
};

/** In the order of their topics; `topics` limits them, as in a route. */
export function offeredEvents(
  events: DefinedEvents | undefined,
  topics: readonly string[] = ['*'],
): OfferedEvent[] {
  return Object.entries(events?.definitions ?? {})
    .filter(([topic]) => topics.some((wanted) => isWithin(topic, wanted)))
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([topic, definition]) => {
      let schema: JsonSchema;
      try {
        schema = jsonSchemaOf(topic, definition);
      } catch {
        // `waybill events` reports it
        return { topic, description: null };
      }
      const { description } = schema;
      return {
        topic,
        description: typeof description === 'string' ? description : null,
        example: exampleOf(schema),
      };
    });
}
