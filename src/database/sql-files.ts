// The SQL that ships with the package: migrations (run once, in order), functions and views (their current
// text, re-applied when it changes), and the privileges that end every transaction.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';

export type SqlFile = { name: string; text: string; checksum: string };

export type SqlFiles = {
  migrations: (SqlFile & { down: string | undefined })[];
  definitions: SqlFile[];
  privileges: SqlFile;
};

const root = new URL('../../sql/', import.meta.url);

export function readSqlFiles(): SqlFiles {
  const names = listFiles('migrations');
  return {
    migrations: names
      .filter((name) => !name.endsWith('.down.sql'))
      .map((name) => {
        const down = name.replace(/\.sql$/, '.down.sql');
        return { ...readFile(name), down: names.includes(down) ? readFile(down).text : undefined };
      }),
    definitions: [...listFiles('functions'), ...listFiles('views')].map(readFile),
    privileges: readFile('privileges.sql'),
  };
}

function listFiles(folder: string): string[] {
  return readdirSync(new URL(`${folder}/`, root))
    .filter((name) => name.endsWith('.sql'))
    .toSorted()
    .map((name) => `${folder}/${name}`);
}

function readFile(name: string): SqlFile {
  const text = readFileSync(new URL(name, root), 'utf8');
  return { name, text, checksum: createHash('sha256').update(text).digest('hex') };
}
