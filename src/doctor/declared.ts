// Declared objects: what the SQL files of this version create, read from their text (tables, indexes and constraints
// of the migrations, functions and views of the definitions). So the doctor knows what should exist without creating
// it. A test compares the result with a migrated database.

import type { SqlFile } from '../database/sql-files.js';

export type DeclaredIndex = {
  name: string;
  table: string;
  /** The statement that creates it again; %s stands for the quoted schema. */
  statement: string;
};

export type Declared = {
  tables: string[];
  indexes: DeclaredIndex[];
  /** Functions and views, with the file that has their text. */
  definitions: { name: string; kind: 'function' | 'view'; file: string }[];
};

export function declaredIn(
  migrations: readonly SqlFile[],
  definitions: readonly SqlFile[],
): Declared {
  const tables = new Set<string>();
  const partitioned = new Set<string>();
  const indexes = new Map<string, DeclaredIndex>();
  for (const statement of migrations.flatMap(({ text }) => statementsOf(text))) {
    const [, table, body] = /^CREATE TABLE (\w+) \((.*)$/s.exec(statement) ?? [];
    if (table !== undefined && body !== undefined) {
      tables.add(table);
      if (/\) PARTITION BY /.test(body)) partitioned.add(table);
      for (const index of constraintsOf(table, body)) indexes.set(index.name, index);
    }
    const index = /^CREATE (UNIQUE )?INDEX (\w+)\s+ON (\w+)\s+(.*)$/s.exec(statement);
    if (index !== null) {
      const [, unique = '', name = '', on = '', rest = ''] = index;
      // an index of a partitioned table cannot be built concurrently
      const beside = partitioned.has(on) ? '' : 'CONCURRENTLY ';
      const again = `CREATE ${unique}INDEX ${beside}${name} ON %s.${on} ${rest.replaceAll(/\s+/g, ' ')};`;
      indexes.set(name, { name, table: on, statement: again });
    }
    const [, kind, dropped = ''] = /^DROP (TABLE|INDEX) (?:IF EXISTS )?(\w+)/.exec(statement) ?? [];
    if (kind === 'INDEX') indexes.delete(dropped);
    if (kind === 'TABLE') {
      tables.delete(dropped);
      for (const each of indexes.values()) if (each.table === dropped) indexes.delete(each.name);
    }
  }
  return {
    tables: [...tables],
    indexes: [...indexes.values()],
    definitions: definitions.flatMap(({ name: file, text }) => {
      const made = withoutComments(text).matchAll(/\bCREATE OR REPLACE (FUNCTION|VIEW) (\w+)/g);
      // a file may have several variants of a function, one for each server version
      const names = new Set([...made].map(([, kind, name]) => `${kind} ${name}`));
      return [...names].map((each) => {
        const [kind, name = ''] = each.split(' ');
        return { name, kind: kind === 'VIEW' ? 'view' : 'function', file };
      });
    }),
  };
}

function statementsOf(text: string): string[] {
  return withoutComments(text)
    .split(/;\s*$/m)
    .map((statement) => statement.trim());
}

/** Removes comments of whole lines only: within a line, `--` may be part of a string. */
function withoutComments(text: string): string {
  return text.replaceAll(/^\s*--.*$/gm, '');
}

/** The indexes of primary keys and unique constraints, with the names that PostgreSQL gives them. */
function constraintsOf(table: string, text: string): DeclaredIndex[] {
  return partsOf(text.replaceAll(/--.*$/gm, '')).flatMap((part) => {
    const made = (name: string, constraint: string) => [
      { name, table, statement: `ALTER TABLE %s.${table} ADD ${constraint};` },
    ];
    const [, columns] = /^PRIMARY KEY \((.*)\)$/.exec(part) ?? [];
    if (columns !== undefined) return made(`${table}_pkey`, `PRIMARY KEY (${columns})`);
    const [, nulls = '', unique] = /^UNIQUE (NULLS NOT DISTINCT )?\((.*)\)$/.exec(part) ?? [];
    if (unique !== undefined)
      return made(`${table}_${unique.split(/,\s*/).join('_')}_key`, `UNIQUE ${nulls}(${unique})`);
    const [column = ''] = part.split(/\s/);
    if (/\bPRIMARY KEY\b/.test(part)) return made(`${table}_pkey`, `PRIMARY KEY (${column})`);
    if (/\bUNIQUE\b/.test(part)) return made(`${table}_${column}_key`, `UNIQUE (${column})`);
    return [];
  });
}

/** Splits at top-level commas, up to the closing parenthesis. */
function partsOf(text: string): string[] {
  const parts = [''];
  let depth = 0;
  for (const character of text) {
    if (character === '(') depth += 1;
    if (character === ')') depth -= 1;
    if (depth < 0) break;
    if (character === ',' && depth === 0) parts.push('');
    else parts[parts.length - 1] += character;
  }
  return parts.map((part) => part.trim());
}
