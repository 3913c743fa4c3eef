// The SQL files of the package: migrations (run once, in order), functions and views (applied again when their text
// changes), and the privileges that end every transaction. A migration NAME.sql can have a folder NAME with one file
// for each feature, which is run after it as a part of it. Every migration except the first says in a comment which
// relays work with it; one without that comment is refused before anything runs.

import { createHash } from 'node:crypto';

import { MigrationError } from '../core/errors.js';
import { sqlTexts } from './sql-texts.js';

export type SqlFile = { name: string; text: string; checksum: string };

export type Migration = SqlFile & {
  down: string | undefined;
  /**
   * The oldest version whose relays work with the migrated schema; null for the first migration, before which there
   * were none.
   */
  worksWith: string | null;
};

export type SqlFiles = {
  migrations: Migration[];
  definitions: SqlFile[];
  privileges: SqlFile;
};

export function readSqlFiles(): SqlFiles {
  const names = listFiles('migrations');
  return {
    migrations: names
      .filter((name) => /^migrations\/[^/]+(?<!\.down)\.sql$/.test(name))
      .map((name, index) => {
        const down = name.replace(/\.sql$/, '.down.sql');
        const folder = name.replace(/\.sql$/, '/');
        const file = joined(
          readFile(name),
          names.filter((part) => part.startsWith(folder)),
        );
        return {
          ...file,
          down: names.includes(down) ? readFile(down).text : undefined,
          worksWith: index === 0 ? null : worksWithOf(file),
        };
      }),
    definitions: [...listFiles('functions'), ...listFiles('views')].map(readFile),
    privileges: readFile('privileges.sql'),
  };
}

export function worksWithOf({ name, text }: Pick<SqlFile, 'name' | 'text'>): string {
  const [, found] =
    /^-- Works with relays of Waybill (\d+\.\d+\.\d+(?:-[\dA-Za-z.-]+)?) and newer\.$/m.exec(
      text,
    ) ?? [];
  if (found === undefined) {
    throw new MigrationError(
      `${name} does not say which relays work with it: add the line "-- Works with relays of Waybill X.Y.Z and newer."`,
    );
  }
  return found;
}

function listFiles(folder: string): string[] {
  return Object.keys(sqlTexts)
    .filter((name) => name.startsWith(`${folder}/`))
    .toSorted();
}

function joined(file: SqlFile, parts: readonly string[]): SqlFile {
  const text = [file.text, ...parts.map((part) => readFile(part).text)].join('\n');
  return { name: file.name, text, checksum: checksumOf(text) };
}

function checksumOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** The name of a functions file leaves out its folder, so the file can be moved without being applied again. */
function readFile(file: string): SqlFile {
  const text = sqlTexts[file];
  if (text === undefined) throw new MigrationError(`${file} is missing: install the package again`);
  const name = file.replace(/^functions\/.*\//, 'functions/');
  return { name, text, checksum: checksumOf(text) };
}
