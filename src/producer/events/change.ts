// Kinds of changes to a payload's schema. Compatible changes are new optional properties, more values of the same type,
// wider limits, and additional properties. All others are breaking.

import { canonical } from './shapes.js';
import type { Shape } from './shapes.js';

export type SchemaChange = {
  /** For example `payload.email`; `[]` are the items of a list, `.*` properties without a name. */
  readonly path: string;
  readonly change: ChangeKind;
  readonly breaking: boolean;
  /** A description of the change. */
  readonly detail: string;
};

export type ChangeKind =
  | 'closed'
  | 'opened'
  | 'limit_loosened'
  | 'limit_tightened'
  | 'property_added'
  | 'property_optional'
  | 'property_removed'
  | 'property_required'
  | 'shape_added'
  | 'shape_removed'
  | 'type_changed'
  | 'type_narrowed'
  | 'type_widened'
  | 'unjudged'
  | 'value_added'
  | 'value_removed';

const harmless: ReadonlySet<ChangeKind> = new Set([
  'opened',
  'limit_loosened',
  'property_added',
  'value_added',
]);

export function change(path: string, kind: ChangeKind, detail: string): SchemaChange {
  return { path, change: kind, breaking: !harmless.has(kind), detail };
}

export function typeChanges(
  path: string,
  before: readonly Shape[],
  after: readonly Shape[],
): SchemaChange[] {
  const typesOf = (shapes: readonly Shape[]) => [...new Set(shapes.map(({ type }) => type))];
  const [old, current] = [typesOf(before), typesOf(after)];
  const gone = old.filter((type) => !current.includes(type)).join(' or ');
  const added = current.filter((type) => !old.includes(type)).join(' or ');
  if (gone !== '' && added !== '') {
    const detail = `is ${current.join(' or ')}, was ${old.join(' or ')}`;
    return [change(path, 'type_changed', detail)];
  }
  if (gone !== '') return [change(path, 'type_narrowed', `may not be ${gone} any more`)];
  return added === '' ? [] : [change(path, 'type_widened', `may also be ${added}`)];
}

/** Changes of listed values, and of whether numbers must be whole. */
export function valueChanges(path: string, before: Shape, after: Shape): SchemaChange[] {
  if (before.values !== undefined && after.values !== undefined) {
    const removed = missing(before.values, after.values);
    const added = missing(after.values, before.values);
    return [
      ...(removed === '' ? [] : [change(path, 'value_removed', `may not be ${removed} any more`)]),
      ...(added === '' ? [] : [change(path, 'value_added', `may also be ${added}`)]),
    ];
  }
  if (before.values !== undefined) {
    const removed = after.whole ? before.values.filter((value) => !Number.isInteger(value)) : [];
    if (removed.length > 0)
      return [change(path, 'value_removed', `may not be ${listed(removed)} any more`)];
    const detail = `need not be one of ${listed(before.values)} any more`;
    return [change(path, 'value_added', detail)];
  }
  if (after.values !== undefined)
    return [change(path, 'value_removed', `may only be ${listed(after.values)} now`)];
  if (before.whole === after.whole) return [];
  return before.whole
    ? [change(path, 'type_widened', 'need not be a whole number any more')]
    : [change(path, 'type_narrowed', 'must be a whole number now')];
}

function missing(values: readonly unknown[], among: readonly unknown[]): string {
  const known = new Set(among.map(canonical));
  return listed(values.filter((value) => !known.has(canonical(value))));
}

function listed(values: readonly unknown[]): string {
  return values.map((value) => JSON.stringify(value)).join(' or ');
}
