// The tables of docs/start/adapters.md and docs/start/runtimes.md name exactly the versions that the tests run with.

import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

const { dependencies } = JSON.parse(readFileSync('test/adapters/package.json', 'utf8')) as {
  dependencies: Record<string, string>;
};

test('the table of libraries lists the tested versions', () => {
  const page = readFileSync('docs/start/adapters.md', 'utf8');
  const named = [...page.matchAll(/(?<=\| |, )(@?[\w/-]+) (\d+\.\d+)(?= |,)/g)];
  expect(new Set(named.map((match) => match[1]))).toEqual(
    new Set([
      '@mikro-orm/postgresql',
      '@prisma/client',
      'drizzle-orm',
      'knex',
      'kysely',
      'pg',
      'postgres',
      'typeorm',
    ]),
  );
  for (const [, name = '', version] of named)
    expect(dependencies[name], name).toMatch(new RegExp(`^${version}\\.\\d+$`));
  const nest = /@nestjs\/core (\d+\.\d+)\b/.exec(readFileSync('docs/start/frameworks.md', 'utf8'));
  expect(dependencies['@nestjs/core']).toMatch(new RegExp(`^${nest?.[1]}\\.`));
});

test('the table of runtimes lists the tested versions', () => {
  const page = readFileSync('docs/start/runtimes.md', 'utf8');
  const named = [...page.matchAll(/(?<=\| |, )(Bun|Deno|workerd|pg|postgres) (\d+\.\d+)\b/g)];
  const names = named.map(([, name = '']) => name.toLowerCase());
  expect(new Set(names)).toEqual(new Set(['bun', 'deno', 'pg', 'postgres', 'workerd']));
  for (const [, name = '', version] of named)
    expect(dependencies[name.toLowerCase()], name).toMatch(new RegExp(`^${version}\\.\\d+$`));
});
