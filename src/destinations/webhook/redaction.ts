// Secret redaction: finds secrets in a response, plain or escaped for JSON, URLs, forms, HTML or PHP, also with one
// escape inside another. It compares without escapes and without case, in time linear in the length of the response.

import { Automaton } from './automaton.js';
import { isUnfinished, readingsOf } from './unescape.js';
import type { Reading } from './unescape.js';

/** A range: `to` is exclusive. */
export type Found = { readonly from: number; readonly to: number };

/** Finds secrets that begin before `end`; the ranges are sorted and do not overlap. */
export type Search = (response: string, end: number, isWhole: boolean) => Found[];

export function searchFor(secrets: readonly string[]): Search {
  const texts = new Set(secrets.flatMap((secret) => readingsOf(secret).map(({ text }) => text)));
  texts.delete('');
  const shortest = Math.min(...[...texts].map(({ length }) => length));
  let made: Automaton | undefined;
  return (response, end, isWhole) => {
    // a shortcut for short responses: no escaped form is shorter than the secret itself
    if (isWhole && response.length < shortest) return [];
    const automaton = (made ??= new Automaton(texts));
    const found = readingsOf(response).map((reading, level) => {
      const isCut = (at: number) => !isWhole && isUnfinished(response, at, level);
      return [...walk(automaton, reading, end, isCut)];
    });
    return joined(found.flat());
  };
}

/** `isCut`: whether the response is cut off after a place; a secret that is incomplete there counts as found. */
function* walk(
  automaton: Automaton,
  { text, from, to }: Reading,
  end: number,
  isCut: (at: number) => boolean,
): Generator<Found> {
  const fromOf = (at: number): number => from?.[at] ?? at;
  let node = 0;
  for (let at = 0; at < text.length; at += 1) {
    node = automaton.step(node, text.charCodeAt(at));
    const first = fromOf(at + 1 - automaton.depth(node));
    if (fromOf(at) >= end && first >= end) return;
    const behind = to?.[at] ?? at + 1;
    const length = automaton.longestEnding(node);
    if (length > 0) yield { from: fromOf(at + 1 - length), to: behind };
    if (automaton.depth(node) > 0 && isCut(behind)) yield { from: first, to: Infinity };
  }
}

function joined(found: Found[]): Found[] {
  const result: Found[] = [];
  for (const next of found.toSorted((a, b) => a.from - b.from || b.to - a.to)) {
    const last = result.at(-1);
    if (last === undefined || next.from >= last.to) result.push(next);
    else if (next.to > last.to) result[result.length - 1] = { from: last.from, to: next.to };
  }
  return result;
}
