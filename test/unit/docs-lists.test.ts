// Pages that list all metrics of health, or all reasons of explain, list exactly those of the SQL files. The page on
// configuration lists exactly the keys that a configuration may have.

import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { resolveConfig } from '../../src/config.js';

const found = (text: string, pattern: RegExp): string[] =>
  [...new Set([...text.matchAll(pattern)].map((match) => match[1] ?? ''))].toSorted();

/** The names in the first column of the page's tables, up to a heading. */
const listedIn = (page: string, heading: string): string[] => {
  const [text = ''] = readFileSync(`docs/operate/${page}`, 'utf8').split(`\n## ${heading}`);
  return found(text, /^\| ((?:`\w+`(?:, )?)+) \|/gm)
    .flatMap((cell) => found(cell, /`(\w+)`/g))
    .toSorted();
};

test('docs/operate/status-and-health.md lists every metric of the view health', () => {
  const view = readFileSync('sql/views/health.sql', 'utf8');
  const metrics = found(view, /^(?:SELECT | +\()'([a-z_]+)'/gm);
  expect(metrics.length).toBeGreaterThan(15);
  expect(listedIn('status-and-health.md', 'Delivery rate')).toEqual(metrics);
});

test('docs/operate/explain.md lists every reason', () => {
  const place = readFileSync('sql/functions/listing/explain.sql', 'utf8');
  const reasons = [
    ...found(place, /SELECT '([a-z_]+)',$/gm),
    ...found(place, /'[a-z]+'::text, '([a-z_]+)'::text/g),
    // of features: sql/functions/rollouts/rollouts_hooks.sql, endpoints/endpoints_hooks.sql
    'left_by_rollout',
    'filtered_out',
  ];
  expect(reasons.length).toBeGreaterThan(15);
  expect(listedIn('explain.md', 'none')).toEqual(reasons.toSorted());
});

test('docs/reference/configuration.md lists every key of a configuration', () => {
  const page = readFileSync('docs/reference/configuration.md', 'utf8');
  const [, section = ''] = /\n## The file\n(.*?)\n## /s.exec(page) ?? [];
  const unknownKey = { destinations: {}, routes: [], noSuchKey: 1 } as never;
  let refusal = '';
  try {
    resolveConfig(unknownKey);
  } catch (error) {
    refusal = String(error);
  }
  const keys = /: use (.*)$/.exec(refusal)?.[1]?.split(', ') ?? [];
  expect(keys).toContain('server');
  expect(found(section, /^\| `(\w+)` \|/gm)).toEqual(keys.toSorted());
});
