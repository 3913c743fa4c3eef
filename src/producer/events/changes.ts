// Changes between two AsyncAPI documents, event by event, breaking changes first.

import type { AsyncApiDocument } from './asyncapi.js';
import { payloadsOf, resolvePointer } from './asyncapi.js';
import type { ChangeKind } from './change.js';
import { schemaChanges } from './schema-changes.js';

export type EventChange = {
  readonly event: string;
  /** The place in the message; null for the event itself. */
  readonly path: string | null;
  readonly change: ChangeKind | 'event_added' | 'event_removed';
  readonly breaking: boolean;
  readonly detail: string;
};

/** `where` names the earlier document in errors. */
export function eventChanges(
  earlier: unknown,
  where: string,
  current: AsyncApiDocument,
): EventChange[] {
  const before = payloadsOf(earlier, where);
  const after = payloadsOf(current, 'the new document');
  const events = [...new Set([...before.keys(), ...after.keys()])].toSorted();
  const changes = events.flatMap((event): EventChange[] => {
    if (!after.has(event)) return [whole(event, 'event_removed', true, 'was removed')];
    if (!before.has(event)) return [whole(event, 'event_added', false, 'was added')];
    return schemaChanges(
      { schema: before.get(event), resolve: (reference) => resolvePointer(earlier, reference) },
      { schema: after.get(event), resolve: (reference) => resolvePointer(current, reference) },
    ).map((change) => ({ event, ...change }));
  });
  return changes.toSorted((a, b) => Number(b.breaking) - Number(a.breaking));
}

function whole(
  event: string,
  change: EventChange['change'],
  breaking: boolean,
  detail: string,
): EventChange {
  return { event, path: null, change, breaking, detail };
}
