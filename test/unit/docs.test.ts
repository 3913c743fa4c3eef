// Keeps the documents true to the sources: generated parts are current, and what they point to exists.

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, test } from 'vitest';

type Documents = { documents: () => { file: string; text: string }[] };
type Generator = {
  generatedFromSources: string[];
  sourceParts: () => Promise<Record<string, string>>;
  filled: (files: string[], parts: Record<string, string>) => { text: string; wanted: string }[];
};

// plain JavaScript without declarations: the types are said here
const load = async <T>(script: string) => (await import(path.resolve('scripts', script))) as T;
const { documents } = await load<Documents>('docs-blocks.mjs');

describe('the generated parts', () => {
  test('are what `node scripts/docs.mjs` writes', async () => {
    const { generatedFromSources, sourceParts, filled } = await load<Generator>('docs.mjs');
    for (const { text, wanted } of filled(generatedFromSources, await sourceParts()))
      expect(text).toBe(wanted);
  }, 30_000);

  test('name an option, a default and a range that the code really has', async () => {
    const { sourceParts } = await load<Generator>('docs.mjs');
    const { relay, retention, attemptCodes } = await sourceParts();
    expect(relay).toContain('| `leaseMs` |');
    expect(relay).toMatch(/`leaseMs` .* \| 30,000 \| 1,000 to 3,600,000 \|/);
    expect(retention).toMatch(/`dedupeKeysDays` .* \| 30 to 36,500, or `null` \|/);
    expect(attemptCodes).toContain('`lease_expired`');
  });
});

describe('every document', () => {
  test('links to files and headings that exist', () => {
    const broken = documents().flatMap(({ file, text }) =>
      [...text.matchAll(/\]\((?!https?:)([^)#]*)(#[^)]*)?\)/g)]
        .map((match) => path.join(path.dirname(file), match[1] ?? ''))
        .filter((target) => !existsSync(target))
        .map((target) => `${file} → ${target}`),
    );
    expect(broken).toEqual([]);
  });

  test('names only files of the repository that exist', () => {
    const missing = documents().flatMap(({ file, text }) =>
      [...text.matchAll(/`((?:src|sql|test|scripts|docs|examples)\/[\w./-]+\.\w+)`/g)]
        .map((match) => match[1] ?? '')
        .filter((name) => !existsSync(name))
        .map((name) => `${file}: ${name}`),
    );
    expect(missing).toEqual([]);
  });

  test('never promises what no outbox can keep', () => {
    for (const { file, text } of documents()) expect(text, file).not.toMatch(/exactly[- ]once/i);
  });
});

test('the README gives the promise', () => {
  const text = readFileSync('README.md', 'utf8');
  expect(text).toContain(
    'if your transaction committed, the message is delivered at least once or stands visibly in the dead letters; ' +
      'if it rolled back, the message never existed; messages with the same key arrive in order; ' +
      'every duplicate carries the same id.',
  );
});

test('decisions are numbered without gaps and kept short', () => {
  const notes = documents().filter(({ file }) => file.startsWith('docs/decisions/'));
  notes.forEach(({ file, text }, index) => {
    expect(path.basename(file).slice(0, 4)).toBe(String(index + 1).padStart(4, '0'));
    expect(text.startsWith(`# ${index + 1}. `), file).toBe(true);
    expect(text.split('\n').length, file).toBeLessThanOrEqual(40);
  });
});
