// A feature stands in its own folders: adding or removing one touches at most four code files outside them. Counted are
// files that import from the feature, or that name its SQL functions, tables or views.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

const mostFiles = 4;

/** Features that are not there yet, with their present number: a number may only shrink. */
const above: Record<string, number> = {
  applications: 24,
  audit: 24,
  'dead-letters': 8,
  endpoints: 11,
  keys: 15,
  replays: 5,
  replicas: 12,
  shards: 13,
  tokens: 7,
};

type CodeFile = { name: string; text: string };

const features = readdirSync('src/features', { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name);

const files = ['src', 'sql', 'dashboard/src', 'scripts'].flatMap((folder) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|tsx|mjs|sql)$/.test(name))
    .map((name) => path.posix.join(folder, name.replaceAll(path.sep, '/')))
    .map((name): CodeFile => ({ name, text: readFileSync(name, 'utf8') })),
);

/** The folders and files of a feature: code, SQL, storage, and its screen or panel of the page. */
function isOwn(name: string, feature: string): boolean {
  return (
    name === `sql/migrations/0001_storage/${feature}.sql` ||
    ['src/features', 'sql/functions', 'dashboard/src/screens'].some((folder) =>
      name.startsWith(`${folder}/${feature}/`),
    )
  );
}

/** The functions, tables, views and types that a feature creates. */
function objectsOf(own: readonly CodeFile[]): string[] {
  const created = /^CREATE (?:OR REPLACE )?(?:FUNCTION|TABLE|VIEW|TYPE) (\w+)/gm;
  return own
    .filter(({ name }) => name.endsWith('.sql'))
    .flatMap(({ text }) => [...text.matchAll(created)].map(([, name = '']) => name));
}

/** Some names are also words, such as `keys`: a name counts in a call, behind a schema, in a clause or in a list. */
function naming(objects: readonly string[]): RegExp {
  const name = `(?:${objects.join('|') || '(?!)'})\\b`;
  return new RegExp(
    [
      `(?<![\\w.#'-])${name}\\(`,
      `\\}\\.${name}`,
      `\\b(?:FROM|JOIN|INTO|UPDATE|TABLE|REFERENCES) ${name}`,
      `[{,]${name}[},]`,
    ].join('|'),
  );
}

/** Files outside a feature's folders that import from it or name its SQL objects, comments aside. */
function filesNaming(feature: string, among: readonly CodeFile[]): string[] {
  const own = among.filter(({ name }) => isOwn(name, feature));
  const objects = naming(objectsOf(own));
  const imports = new RegExp(`(?:from |\\()'[^']*/${feature}/[\\w-]+\\.[jt]s'`);
  return among
    .filter((file) => !own.includes(file))
    .filter(({ text }) => {
      const code = text
        .split('\n')
        .filter((line) => !/^\s*(--|\/\/|\/?\*)/.test(line))
        .join('\n');
      return imports.test(code) || objects.test(code);
    })
    .map(({ name }) => name)
    .toSorted();
}

describe('at most four code files outside its folders name the feature', () => {
  it.each(features)('%s', (feature) => {
    const found = filesNaming(feature, files);
    expect(found.length, found.join(', ')).toBeLessThanOrEqual(above[feature] ?? mostFiles);
  });

  it.each(Object.entries(above))(
    'or %s, whose number has not shrunk below %i',
    (feature, known) => {
      expect(filesNaming(feature, files)).toHaveLength(known);
    },
  );
});

it('an import, a call, a table, a right and a query in TypeScript are found, and a comment is not', () => {
  const own = [
    { name: 'src/features/gifts/database.ts', text: '' },
    {
      name: 'sql/functions/gifts/gifts.sql',
      text: 'CREATE OR REPLACE FUNCTION wrap_gift(p_id int)\n',
    },
    { name: 'sql/migrations/0001_storage/gifts.sql', text: 'CREATE TABLE gifts (\n' },
  ];
  const outside = (text: string) =>
    filesNaming('gifts', [...own, { name: 'src/elsewhere.ts', text }]);
  for (const text of [
    `import { wrap } from '../features/gifts/database.js';`,
    `const { wrap } = await import('./gifts/database.js');`,
    'PERFORM wrap_gift(1);',
    'SELECT count(*) FROM gifts g',
    `('{relay}', '{claim,wrap_gift,settle}')`,
    'SELECT ${schema}.wrap_gift($1)',
  ])
    expect(outside(text), text).toEqual(['src/elsewhere.ts']);
  for (const text of [
    '// import from ../features/gifts/database.js, then PERFORM wrap_gift(1)',
    '-- FROM gifts',
    'const gifts = 1;',
    'this.#gifts();',
  ])
    expect(outside(text), text).toEqual([]);
});
