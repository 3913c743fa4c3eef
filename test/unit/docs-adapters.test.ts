// The table of docs/start/adapters.md names exactly the versions that the contract runs with.

import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

test('the table lists the tested versions', () => {
  const { dependencies } = JSON.parse(readFileSync('test/adapters/package.json', 'utf8')) as {
    dependencies: Record<string, string>;
  };
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
