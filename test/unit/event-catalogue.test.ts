// The catalogue of events: every event is emitted somewhere, and some test waits for it or asserts it; logs take all of
// them, with the level that the documents say.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it, test } from 'vitest';

import { eventLevel } from '../../src/telemetry/events.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { metricCatalogue } from '../../src/telemetry/metric-catalogue.js';

function textsOf(folder: string, skip: RegExp): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !skip.test(name))
    .map((name) => readFileSync(path.join(folder, name), 'utf8'));
}

const catalogue = readFileSync('src/telemetry/events.ts', 'utf8');
const union = catalogue.slice(
  catalogue.indexOf('export type RelayEvent'),
  catalogue.indexOf('export type Emit'),
);
const names = [...union.matchAll(/\bname: '(\w+)'/g)].map(([, name]) => name ?? '');
const sources = textsOf('src', /telemetry/).join('\n');
// a made-up event proves nothing of who emits it: what tests hand to metrics does not count
const tests = textsOf('test', /unit|node_modules/).join('\n');

describe('every event', () => {
  test('the catalogue is found', () => expect(names.length).toBeGreaterThan(25));

  it.each(names)('%s is emitted, and a test on a real relay says so', (name) => {
    expect(sources).toMatch(new RegExp(`\\bname: '${name}'`));
    const asserted = [
      `\\b(?:event|of)\\(\\s*'${name}'`,
      `\\bname(?::| ===) '${name}'`,
      `says\\(.*\\b${name}\\b`,
      `toContain\\('${name}'\\)`,
    ];
    expect(tests).toMatch(new RegExp(asserted.join('|')));
  });

  it('P14 has a level, and counts in metrics that exist', () => {
    const levels = new Set(names.map((name) => eventLevel({ name } as RelayEvent)));
    expect(levels).toEqual(new Set(['debug', 'info', 'warn']));
    const counted = Object.values(metricCatalogue).flatMap(({ events }) => [...events]);
    expect(counted.filter((name) => !names.includes(name))).toEqual([]);
  });
});
