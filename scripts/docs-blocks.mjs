// Code blocks of the documents, for the tests that check them: JavaScript is compared with the examples, commands
// with the command line, and SQL is run as psql would run it.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const root = new URL('../', import.meta.url).pathname;

/** @typedef {{ file: string, line: number, language: string, text: string }} Block */

/** Every document of the project, with its text. @returns {{ file: string, text: string }[]} */
export function documents() {
  const inFolder = ['docs', 'examples'].flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => !name.includes('node_modules'))
      .map((name) => path.join(folder, name)),
  );
  return [...readdirSync(root), ...inFolder]
    .filter((name) => name.endsWith('.md'))
    .toSorted()
    .map((file) => ({ file, text: readFileSync(path.join(root, file), 'utf8') }));
}

/** @param {string} [language] @returns {Block[]} */
export function blocks(language) {
  return documents()
    .flatMap(({ file, text }) =>
      [...text.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].map((match) => ({
        file,
        line: text.slice(0, match.index).split('\n').length,
        language: match[1] ?? '',
        text: match[2] ?? '',
      })),
    )
    .filter((block) => language === undefined || block.language === language);
}

/**
 * @typedef {{ query: (sql: string) => Promise<{ rows: Record<string, unknown>[] }> }} Client
 * @typedef {{ sql: string, rows: Record<string, unknown>[] }} Result
 */

/** Runs a script as psql does, as far as \set, \gset, \gexec and variables go. @param {Client} client @param {string} script @param {Map<string, string>} variables @returns {Promise<Result[]>} */
export async function runLikePsql(client, script, variables) {
  /** @type {Result[]} */
  const results = [];
  for (const [statement] of script.matchAll(
    /^\\set .*$|[^\s\\](?:\$\$[\s\S]*?\$\$|[\s\S])*?(?:;$|\\gset$|\\gexec$)/gm,
  )) {
    const [, name, value] = /^\\set (\w+) (.*)$/.exec(statement) ?? [];
    if (name !== undefined) {
      variables.set(name, value ?? '');
      continue;
    }
    const sql = withVariables(statement.replace(/\\g\w+$/, ''), variables);
    const { rows } = await client.query(sql);
    results.push({ sql, rows });
    if (statement.endsWith('\\gset')) {
      if (rows.length !== 1) throw new Error(`\\gset needs one row, not ${rows.length}: ${sql}`);
      for (const [column, cell] of Object.entries(rows[0] ?? {}))
        variables.set(column, String(cell));
    }
    if (statement.endsWith('\\gexec')) {
      for (const row of rows)
        for (const cell of Object.values(row)) await client.query(String(cell));
    }
  }
  return results;
}

/** @param {string} sql @param {Map<string, string>} variables */
function withVariables(sql, variables) {
  return sql
    .replaceAll(/:'(\w+)'/g, (whole, name) => {
      const value = variables.get(name);
      return value === undefined ? whole : `'${value.replaceAll("'", "''")}'`;
    })
    .replaceAll(/(?<![:\w]):([a-z_]+)\b/g, (whole, name) => variables.get(name) ?? whole);
}
