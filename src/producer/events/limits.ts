// Limits of a JSON Schema on values of one type, and the direction of each change: a tighter limit rejects values that
// were allowed, a looser one allows values that were rejected.

import { canonical } from './shapes.js';
import type { Shape } from './shapes.js';

export type LimitChange = {
  readonly tighter: boolean;
  /** A description of the change. */
  readonly detail: string;
};

const least = ['minItems', 'minLength', 'minProperties'];
const most = ['maxItems', 'maxLength', 'maxProperties'];
/** Two different texts cannot be compared, so a change counts as tighter. */
const rules = ['format', 'pattern'];

export function limitChanges(before: Shape, after: Shape): LimitChange[] {
  const found: LimitChange[] = [];
  const add = (keyword: string, tighter: boolean, was: unknown, is: unknown) =>
    found.push({ tighter, detail: `${keyword} is ${words(is)}, was ${words(was)}` });
  const both = (keyword: string) => [before.keywords[keyword], after.keywords[keyword]] as const;

  for (const keyword of least) {
    const [was, is] = both(keyword) as readonly (number | undefined)[];
    if ((was ?? 0) !== (is ?? 0)) add(keyword, (is ?? 0) > (was ?? 0), was, is);
  }
  for (const keyword of most) {
    const [was = Infinity, is = Infinity] = both(keyword) as readonly (number | undefined)[];
    if (was !== is) add(keyword, is < was, finite(was), finite(is));
  }
  if (before.type === 'number') {
    const bottom = [lowest(before), lowest(after)] as const;
    const top = [highest(before), highest(after)] as const;
    compareEnds('minimum', bottom[0], bottom[1], add);
    compareEnds('maximum', negated(top[0]), negated(top[1]), add);
  }
  const [factor, newFactor] = both('multipleOf') as readonly (number | undefined)[];
  if (factor !== newFactor) {
    const looser = newFactor === undefined || (factor !== undefined && factor % newFactor === 0);
    add('multipleOf', !looser, factor, newFactor);
  }
  const [unique, newUnique] = both('uniqueItems').map((value) => value === true);
  if (unique !== newUnique) add('uniqueItems', newUnique === true, unique, newUnique);
  for (const keyword of rules) {
    const [was, is] = both(keyword);
    if (canonical(was) !== canonical(is)) add(keyword, is !== undefined, was, is);
  }
  return found;
}

/** An exclusive limit. */
class Beyond {
  constructor(readonly words: string) {}
}

type End = { readonly value: number; readonly open: boolean; readonly shown: unknown };

/** The lowest allowed number; `open`: exclusive. For whole numbers, "above 0" becomes "from 1". */
function lowest({ keywords, whole }: Shape): End {
  const { minimum = -Infinity, exclusiveMinimum = -Infinity } = keywords as Record<string, number>;
  const open = exclusiveMinimum >= minimum && exclusiveMinimum !== -Infinity;
  const value = open ? exclusiveMinimum : minimum;
  const shown =
    finite(value) === undefined ? undefined : open ? new Beyond(`above ${value}`) : value;
  if (!whole || !Number.isFinite(value)) return { value, open, shown };
  return { value: open ? Math.floor(value) + 1 : Math.ceil(value), open: false, shown };
}

function highest(shape: Shape): End {
  const { maximum, exclusiveMaximum } = shape.keywords as Record<string, number>;
  const { value, open } = lowest({
    ...shape,
    keywords: {
      ...(maximum !== undefined && { minimum: -maximum }),
      ...(exclusiveMaximum !== undefined && { exclusiveMinimum: -exclusiveMaximum }),
    },
  });
  const shown =
    finite(value) === undefined ? undefined : open ? new Beyond(`below ${-value}`) : -value;
  return { value: -value, open, shown };
}

const negated = ({ value, ...end }: End): End => ({ ...end, value: -value });

function compareEnds(
  keyword: string,
  before: End,
  after: End,
  add: (keyword: string, tighter: boolean, was: unknown, is: unknown) => void,
): void {
  if (before.value === after.value && before.open === after.open) return;
  const tighter = after.value > before.value || (after.value === before.value && after.open);
  add(keyword, tighter, before.shown, after.shown);
}

const words = (value: unknown) =>
  value === undefined ? 'not set' : value instanceof Beyond ? value.words : JSON.stringify(value);
const finite = (value: number) => (Number.isFinite(value) ? value : undefined);
