// The document on scale has no figures of its own: every measurement comes from the document on benchmarks. Round
// figures are advice or arithmetic, and are ignored.

import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

const read = (name: string) => readFileSync(`docs/${name}.md`, 'utf8');

it('every figure in the document on scale is in the document on benchmarks', () => {
  const figures =
    read('operate/scale').match(/\d{1,3},\d{3}(?!,)(?<!000)|\d+\.\d ms|\b354 bytes/g) ?? [];
  expect(figures.length).toBeGreaterThan(20);
  const results = read('internals/benchmarks').replaceAll('\n', ' ');
  const missing = figures.filter((figure) => !results.includes(figure.replace(' bytes', ' (')));
  expect(missing).toEqual([]);
});
