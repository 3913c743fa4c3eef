// Keeps the documents in step with the sources: generated parts are current, and all links and file names exist.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, test } from 'vitest';

type Documents = { documents: () => { file: string; text: string }[] };
type Llms = { llmsText: () => string };
type Generator = {
  generatedFromSources: string[];
  sourceParts: (load: (name: string) => Promise<unknown>) => Promise<Record<string, string>>;
  filled: (files: string[], parts: Record<string, string>) => { text: string; wanted: string }[];
};

// plain JavaScript without declarations, so the types are declared here
const load = async <T>(script: string) => (await import(path.resolve('scripts', script))) as T;
const { documents } = await load<Documents>('docs-blocks.mjs');

/** The anchors of the headings of a document, as GitHub makes them. */
function anchorsOf(text: string): Set<string> {
  return new Set(
    [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\w\- ]/g, '')
        .replaceAll(' ', '-'),
    ),
  );
}

/** Names of other products, and placeholders. */
const foreignNames = new Set(
  `pg_upgrade pg_extension limit_req remote_apply ignore_startup_parameters DUPLICATE_SEQUENCE_NUMBER CERT_HAS_EXPIRED
   ce_partitionkey ce_type ce_source delivery_mode content_type SendMessage GetQueueAttributes burstWhenBatchFull
   localConcurrency node_modules isTransaction queryRunner isTransactionActive fromDrizzle fairness_lanes_N
   fairness_queue_N WAYBILL_SHARD_EU_WEST_DIRECT_URL WAYBILL_SHARD_EU_WEST_SERVER_URL`.split(/\s+/),
);

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : filesBelow(file);
    return /\.(?:ts|tsx|mjs|sql|json|ya?ml)$/.test(file) ? [file] : [];
  });
}

/** All words of the sources, except of this file. */
function wordsOfSources(): Set<string> {
  const folders = ['src', 'sql', 'dashboard/src', 'deploy', 'scripts', 'examples', 'bench', 'test'];
  const files = [
    'package.json',
    'tsconfig.json',
    'vitest.config.ts',
    ...folders.flatMap(filesBelow),
  ];
  return new Set(
    files
      .filter((file) => !file.endsWith('docs.test.ts'))
      .flatMap((file) => readFileSync(file, 'utf8').match(/\w+/g) ?? []),
  );
}

describe('the generated parts', async () => {
  const { generatedFromSources, sourceParts, filled } = await load<Generator>('docs.mjs');
  const parts = await sourceParts(
    async (name) => (await import(path.resolve('src', `${name}.ts`))) as unknown,
  );

  test('are what `npm run docs` writes', () => {
    for (const { text, wanted } of filled(generatedFromSources, parts)) expect(text).toBe(wanted);
  });

  test('describe options with their real default and range', () => {
    const { relay, retention, attemptCodes } = parts;
    expect(relay).toContain('| `leaseMs` |');
    expect(relay).toMatch(/`leaseMs` .* \| 30,000 \| 1,000 to 3,600,000 \|/);
    expect(retention).toMatch(/`dedupeKeysDays` .* \| 30 to 36,500, or `null` \|/);
    expect(attemptCodes).toContain('`zombie`');
  });
});

test('llms.txt lists every page, and is what `npm run docs` writes', async () => {
  const { llmsText } = await load<Llms>('docs-llms.mjs');
  const text = readFileSync('llms.txt', 'utf8');
  expect(text).toBe(llmsText());
  const pages = documents().filter(
    ({ file }) => file.startsWith('docs/') && !/docs\/(index|internals\/decisions)/.test(file),
  );
  expect(pages.length).toBeGreaterThan(50);
  expect(
    pages.filter(({ file }) => !text.includes(`](${file}): `)).map(({ file }) => file),
  ).toEqual([]);
  expect(text.split('\n').filter((line) => /: .?$/.test(line))).toEqual([]);
});

describe('every document', () => {
  test('links to files and headings that exist', () => {
    const headings = new Map(documents().map(({ file, text }) => [file, anchorsOf(text)]));
    const broken = documents().flatMap(({ file, text }) =>
      [...text.matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)].flatMap(
        ([link, linked = '', anchor]) => {
          const target = linked === '' ? file : path.join(path.dirname(file), linked);
          if (!existsSync(target)) return [`${file}: ${link}`];
          return anchor === undefined || headings.get(target)?.has(anchor)
            ? []
            : [`${file}: ${link} has no such heading`];
        },
      ),
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

  test('names only fields, functions and settings that the sources have', () => {
    const words = wordsOfSources();
    const unknown = documents()
      // the changes name what is gone, the examples name things of other projects
      .filter(({ file }) => file !== 'CHANGELOG.md' && !file.startsWith('examples/'))
      .flatMap(({ file, text }) =>
        [...text.matchAll(/`([^`\n]+)`/g)]
          .map(([, quoted = '']) => quoted.replaceAll(/[\w./-]+\.(?:sql|ts|md)\b/g, ''))
          .flatMap((quoted) => quoted.match(/\b[A-Za-z]+(?:_[A-Za-z]\w*|[a-z][A-Z]\w*)/g) ?? [])
          .filter((name) => !words.has(name) && !foreignNames.has(name))
          .map((name) => `${file}: ${name}`),
      );
    expect(unknown).toEqual([]);
  });

  test('does not promise exactly-once delivery', () => {
    for (const { file, text } of documents()) expect(text, file).not.toMatch(/exactly[- ]once/i);
  });
});

test('the README states the delivery guarantee', () => {
  const text = readFileSync('README.md', 'utf8');
  expect(text).toContain(
    'if your transaction committed, the message is delivered at least once or stands visibly in the dead letters; ' +
      'if it rolled back, the message never existed; messages with the same key arrive in order; ' +
      'every duplicate carries the same id.',
  );
});

test('decisions are numbered without gaps and kept short', () => {
  const notes = documents().filter(({ file }) => file.startsWith('docs/internals/decisions/'));
  notes.forEach(({ file, text }, index) => {
    expect(path.basename(file).slice(0, 4)).toBe(String(index + 1).padStart(4, '0'));
    expect(text.startsWith(`# ${index + 1}. `), file).toBe(true);
    expect(text.split('\n').length, file).toBeLessThanOrEqual(40);
  });
});

test('troubleshooting names only reasons that the page on explain has', () => {
  const reasonsOf = (file: string) =>
    [...readFileSync(file, 'utf8').matchAll(/^\| ((?:`\w+`(?:, )?)+) \| (?!`npx)/gm)].flatMap(
      (row) => [...(row[1] ?? '').matchAll(/\w+/g)].map(([word]) => word),
    );
  const named = reasonsOf('docs/operate/troubleshooting.md');
  expect(named.length).toBeGreaterThan(10);
  const known = reasonsOf('docs/operate/explain.md');
  expect(named.filter((reason) => !known.includes(reason))).toEqual([]);
});

test('the pages for operators and the references link to the glossary, and the README lists them all', () => {
  const readme = readFileSync('README.md', 'utf8');
  const pages = documents().filter(({ file }) => /^docs\/(operate|reference)\//.test(file));
  expect(pages.length).toBeGreaterThan(25);
  expect(pages.filter(({ text }) => !text.includes('concepts.md')).map(({ file }) => file)).toEqual(
    [],
  );
  expect(pages.map(({ file }) => file).filter((file) => !readme.includes(`(${file})`))).toEqual([]);
});
