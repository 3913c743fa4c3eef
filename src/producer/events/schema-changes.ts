// Changes between two JSON Schemas of a payload, and which of them break. Two kinds break: values that are no longer
// allowed (this concerns producers and pending messages), and properties that consumers relied on, such as one that was
// always present or the type of a value. A change that cannot be judged counts as breaking.

import { change, typeChanges, valueChanges } from './change.js';
import type { SchemaChange } from './change.js';
import { limitChanges } from './limits.js';
import { canonical, followed, shapesOf } from './shapes.js';
import type { Resolve, Shape } from './shapes.js';
import { isObject } from './subschemas.js';

type Side = { readonly schema: unknown; readonly resolve: Resolve };

export function schemaChanges(before: Side, after: Side): SchemaChange[] {
  const comparison = new Comparison(before.resolve, after.resolve, 'forth', new Set());
  return comparison.compare('payload', before.schema, after.schema);
}

class Comparison {
  readonly #before: Resolve;
  readonly #after: Resolve;
  readonly #way: 'forth' | 'back';
  /** Pairs that are being compared by a caller: a schema may contain itself. */
  readonly #open: Set<string>;

  constructor(before: Resolve, after: Resolve, way: 'forth' | 'back', open: Set<string>) {
    this.#before = before;
    this.#after = after;
    this.#way = way;
    this.#open = open;
  }

  compare(path: string, before: unknown, after: unknown): SchemaChange[] {
    const [old, current] = [followed(before, this.#before), followed(after, this.#after)];
    const [oldText, text] = [canonical(old), canonical(current)];
    // equal references may have different targets
    if (oldText === text && !text.includes('"$ref"')) return [];
    const pair = `${this.#way} ${oldText} ${text}`;
    if (this.#open.has(pair)) return [];
    this.#open.add(pair);
    const shapes = [shapesOf(old, this.#before), shapesOf(current, this.#after)] as const;
    const found = this.#compareShapes(path, ...shapes);
    this.#open.delete(pair);
    return found;
  }

  #compareShapes(path: string, before: readonly Shape[], after: readonly Shape[]): SchemaChange[] {
    if (before.length === 0 || after.length === 0) {
      if (before.length === after.length) return [];
      return before.length === 0
        ? [change(path, 'opened', 'is allowed now')]
        : [change(path, 'closed', 'is not allowed any more')];
    }
    const found = typeChanges(path, before, after);
    for (const type of new Set(before.map((shape) => shape.type))) {
      const [old, current] = [before, after].map((all) => all.filter((one) => one.type === type));
      if (old && current && current.length > 0) found.push(...this.#ofOneType(path, old, current));
    }
    return found;
  }

  /** Compares each shape with the one that it became; shapes without a counterpart were removed or added. */
  #ofOneType(path: string, before: readonly Shape[], after: readonly Shape[]): SchemaChange[] {
    const found: SchemaChange[] = [];
    const left = new Set(after);
    const ways = before.map((shape) => ({
      shape,
      into: after.map((target) => ({ target, changes: this.#shape(path, shape, target) })),
    }));
    const same = new Set(
      ways.flatMap(({ into }) => into.filter(isSame).map(({ target }) => target)),
    );
    const broken = ways.filter(({ into }) => {
      const [best] = into
        .filter(({ changes }) => !changes.some(({ breaking }) => breaking))
        .toSorted((a, b) => a.changes.length - b.changes.length || rank(a) - rank(b));
      if (best === undefined) return true;
      left.delete(best.target);
      // an unchanged shape allowed this one too
      if (!same.has(best.target)) found.push(...best.changes);
      return false;

      function rank({ target }: { target: Shape }): number {
        return left.has(target) ? 0 : 1;
      }
    });
    for (const { shape, into } of broken) {
      // a single shape on both sides is the same one; among several, the marks decide
      const only = before.length === 1 && after.length === 1;
      const next = into.find(
        ({ target }) => left.has(target) && (only || marks(target) === marks(shape)),
      );
      if (next === undefined) {
        found.push(change(path, 'shape_removed', `may not be ${words(shape)} any more`));
      } else {
        left.delete(next.target);
        found.push(...next.changes);
      }
    }
    const added = [...left].filter((shape) => !this.#wasAllowed(path, shape, before));
    return [
      ...found,
      ...added.map((shape) => change(path, 'shape_added', `may also be ${words(shape)}`)),
    ];
  }

  /** Whether one of the earlier shapes includes all of this one. */
  #wasAllowed(path: string, shape: Shape, before: readonly Shape[]): boolean {
    const back = new Comparison(
      this.#after,
      this.#before,
      this.#way === 'forth' ? 'back' : 'forth',
      this.#open,
    );
    return before.some((earlier) =>
      back.#shape(path, shape, earlier).every(
        ({ breaking, change: kind }) => !breaking && kind !== 'property_added',
      ),
    );
  }

  #shape(path: string, before: Shape, after: Shape): SchemaChange[] {
    const found = valueChanges(path, before, after);
    for (const { tighter, detail } of limitChanges(before, after))
      found.push(change(path, tighter ? 'limit_tightened' : 'limit_loosened', detail));
    for (const keyword of keysOf(before.opaque, after.opaque)) {
      const [was, is] = [before.opaque[keyword], after.opaque[keyword]];
      if (canonical(was) !== canonical(is))
        found.push(change(path, 'unjudged', `${keyword} changed, which cannot be judged`));
    }
    if (before.type === 'array') found.push(...this.#items(path, before, after));
    if (before.type === 'object') found.push(...this.#properties(path, before, after));
    return found;
  }

  #items(path: string, before: Shape, after: Shape): SchemaChange[] {
    const [old, current] = [itemsOf(before), itemsOf(after)];
    const count = Math.max(old.places.length, current.places.length);
    const places = Array.from({ length: count }, (_none, index) => {
      const [was, is] = [old.places[index] ?? old.rest, current.places[index] ?? current.rest];
      return this.compare(`${path}[${index}]`, was, is);
    });
    return [...places.flat(), ...this.compare(`${path}[]`, old.rest, current.rest)];
  }

  #properties(path: string, before: Shape, after: Shape): SchemaChange[] {
    const [old, current] = [propertiesOf(before), propertiesOf(after)];
    const found: SchemaChange[] = [];
    for (const name of keysOf(
      { ...old.schemas, ...old.required },
      current.schemas,
      current.required,
    )) {
      const place = `${path}.${name}`;
      const has = (among: object) => Object.hasOwn(among, name);
      if (has(old.schemas) && !has(current.schemas)) {
        found.push(change(place, 'property_removed', 'was removed'));
        continue;
      }
      if (has(old.schemas))
        found.push(...this.compare(place, old.schemas[name], current.schemas[name]));
      else if ((isObject(old.others) || has(old.required)) && has(current.schemas))
        found.push(...this.compare(place, old.others, current.schemas[name]));
      if (has(current.required) && !has(old.required)) {
        const detail = has(old.schemas) ? 'is required now' : 'was added, and is required';
        found.push(change(place, 'property_required', detail));
      } else if (has(old.required) && !has(current.required)) {
        found.push(change(place, 'property_optional', 'may be absent now'));
      } else if (!has(old.schemas) && has(current.schemas)) {
        found.push(change(place, 'property_added', 'was added'));
      }
    }
    found.push(...this.#others(path, old.others, current.others));
    return [...found, ...this.compare(`${path}.(names)`, old.names, current.names)];
  }

  /** Compares properties that are not named. */
  #others(path: string, before: unknown, after: unknown): SchemaChange[] {
    if ((before === false) === (after === false)) return this.compare(`${path}.*`, before, after);
    return after === false
      ? [change(path, 'closed', 'allows no other properties any more')]
      : [change(path, 'opened', 'allows other properties')];
  }
}

const isSame = ({ changes }: { changes: readonly SchemaChange[] }) => changes.length === 0;

function itemsOf({ keywords }: Shape): { places: readonly unknown[]; rest: unknown } {
  const { items, prefixItems, additionalItems } = keywords;
  if (Array.isArray(items)) return { places: items, rest: additionalItems ?? true };
  return { places: Array.isArray(prefixItems) ? prefixItems : [], rest: items ?? true };
}

function propertiesOf({ keywords }: Shape) {
  const { properties, required, additionalProperties, propertyNames } = keywords;
  const names = Array.isArray(required) ? (required as string[]) : [];
  return {
    schemas: isObject(properties) ? properties : {},
    required: Object.fromEntries(names.map((name) => [name, true])),
    others: additionalProperties ?? true,
    names: propertyNames ?? { type: 'string' },
  };
}

/** What distinguishes an alternative from others: its properties with a single value. */
function marks(shape: Shape): string {
  return Object.entries(propertiesOf(shape).schemas)
    .flatMap(([name, schema]) =>
      isObject(schema) && 'const' in schema ? [`${name} ${JSON.stringify(schema['const'])}`] : [],
    )
    .toSorted()
    .join(' and ');
}

function words(shape: Shape): string {
  const told = marks(shape);
  return told === '' ? `this kind of ${shape.type}` : `the ${shape.type} with ${told}`;
}

const keysOf = (...objects: readonly object[]) =>
  [...new Set(objects.flatMap((each) => Object.keys(each)))].toSorted();
