// The catalogue of events: every event is emitted somewhere, a test waits for it or asserts it, and the log uses the
// level that the documents state.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it, test } from 'vitest';

import { features } from '../../src/features/all.js';
import { eventLevel } from '../../src/features/event-level.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { metricCatalogue } from '../../src/telemetry/metric-catalogue.js';

function textsOf(folder: string, skip: RegExp): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !skip.test(name))
    .map((name) => readFileSync(path.join(folder, name), 'utf8'));
}

/** The tests of a folder, without those of generated and installed packages below it. */
function ownTexts(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory())
      return /^(generated|node_modules)$/.test(entry.name) ? [] : ownTexts(file);
    return entry.name.endsWith('.ts') ? [readFileSync(file, 'utf8')] : [];
  });
}

const catalogue = readFileSync('src/telemetry/events.ts', 'utf8');
const union = catalogue.slice(
  catalogue.indexOf('export type CoreEvent'),
  catalogue.indexOf('export interface FeatureEvents'),
);
/** The events that the folders of features declare. */
const declared = textsOf('src/features', /^$/).flatMap((text) =>
  [...text.matchAll(/interface FeatureEvents \{\n(.*?)\n {2}\}/gs)].flatMap(([, body = '']) =>
    [...body.matchAll(/^ {4}(\w+): \{/gm)].map(([, name = '']) => name),
  ),
);
const ofCore = [...union.matchAll(/\bname: '(\w+)'/g)].map(([, name]) => name ?? '');
const names = [...ofCore, ...declared];
const sources = textsOf('src', /telemetry/).join('\n');
// an event that a test makes up and hands to the metrics is no proof that the relay emits it
const folders = ['adapters', 'browser', 'contract', 'database', 'fault', 'process', 'support'];
const tests = folders.flatMap((folder) => ownTexts(path.join('test', folder))).join('\n');

describe('every event', () => {
  test('is not empty', () => expect(names.length).toBeGreaterThan(25));

  it.each(names)('%s is emitted, and a test with a real relay checks it', (name) => {
    expect(sources).toMatch(new RegExp(`\\bname: '${name}'`));
    const asserted = [
      `\\b(?:event|of)\\(\\s*'${name}'`,
      `\\bname(?::| ===) '${name}'`,
      `says\\(.*\\b${name}\\b`,
      `toContain\\('${name}'\\)`,
    ];
    expect(tests).toMatch(new RegExp(asserted.join('|')));
  });

  it('of a feature is described by the feature', () => {
    const described = features.flatMap(({ events = {} }) => Object.keys(events));
    expect(described.toSorted()).toEqual(declared.toSorted());
    expect(declared).toContain('alert_firing');
  });

  it('P14 has a level, and counts in metrics that exist', () => {
    const levels = new Set(names.map((name) => eventLevel({ name } as RelayEvent)));
    expect(levels).toEqual(new Set(['debug', 'info', 'warn']));
    const counted = Object.values(metricCatalogue).flatMap(({ events }) => [...events]);
    expect(counted.filter((name) => !names.includes(name))).toEqual([]);
  });
});
