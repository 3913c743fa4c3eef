// The document on scale has no figures of its own: what it says was measured is what the document on benchmarks says.
// Round figures are advice or arithmetic, and are left out.

import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

const read = (name: string) => readFileSync(`docs/${name}.md`, 'utf8');

it('every figure of the document on scale stands in the one on benchmarks', () => {
  const figures = read('scale').match(/\d{1,3},\d{3}(?!,)(?<!000)|\d+\.\d ms|\b354 bytes/g) ?? [];
  expect(figures.length).toBeGreaterThan(20);
  const results = read('benchmarks').replaceAll('\n', ' ');
  const missing = figures.filter((figure) => !results.includes(figure.replace(' bytes', ' (')));
  expect(missing).toEqual([]);
});
