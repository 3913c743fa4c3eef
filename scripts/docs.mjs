// Rewrites the generated parts of the documents, which are between <!-- generated:NAME --> and <!-- /generated -->.
// Options, codes, events, routes, commands and SQL objects are read from the sources and from a migrated database, so the documents
// cannot go stale. llms.txt is generated as a whole. test/unit/docs.test.ts and test/database/docs-sql.test.ts fail when they do. Usage: npm run docs,
// which builds first.

import { readFileSync, writeFileSync } from 'node:fs';

import pg from 'pg';

import { cliTables } from './docs-cli.mjs';
import { codeTables } from './docs-codes.mjs';
import { httpTables } from './docs-http.mjs';
import { llmsText } from './docs-llms.mjs';
import { optionTables } from './docs-options.mjs';
import { sqlTables } from './docs-sql.mjs';

const root = new URL('../', import.meta.url);

/** The files with generated parts. */
export const generatedFromSources = [
  'docs/reference/cli.md',
  'docs/reference/configuration.md',
  'docs/reference/http.md',
  'docs/guides/cursors.md',
  'docs/guides/destinations/kafka.md',
  'docs/guides/destinations/nats.md',
  'docs/guides/destinations/rabbitmq.md',
  'docs/guides/destinations/webhook.md',
  'docs/operate/doctor.md',
  'docs/reference/errors.md',
  'docs/reference/metrics.md',
  'docs/operate/logs-and-events.md',
  'docs/guides/safety.md',
];
export const generatedFromCatalog = [
  'docs/operate/alerts.md',
  'docs/operate/roles.md',
  'docs/reference/sql.md',
];

/**
 * Loads a module of the sources, such as `relay/options`: this script loads it as built, a test as it is written.
 * @typedef {(name: string) => Promise<any>} Load
 */

/** All parts that need no database. @param {Load} load */
export async function sourceParts(load) {
  return {
    ...(await optionTables(load)),
    ...(await codeTables(load)),
    ...(await httpTables(load)),
    ...(await cliTables(load)),
  };
}

/**
 * The parts that come from a migrated database.
 * @param {import('./docs-sql.mjs').Client} client @param {string} schema @param {Load} load
 */
export async function catalogParts(client, schema, load) {
  return sqlTables(client, schema, load);
}

/** The files with their present and their wanted text. @param {string[]} files @param {Record<string, string>} parts */
export function filled(files, parts) {
  const used = new Set();
  const texts = files.map((file) => {
    const text = readFileSync(new URL(file, root), 'utf8');
    const marked = /(<!-- generated:([\w-]+) -->\n).*?(<!-- \/generated -->)/gs;
    const wanted = text.replaceAll(marked, (_all, start, name, end) => {
      if (parts[name] === undefined)
        throw new Error(`${file} asks for ${name}, which is not generated`);
      used.add(name);
      return `${start}${parts[name]}\n${end}`;
    });
    return { file, text, wanted };
  });
  const unused = Object.keys(parts).filter((name) => !used.has(name));
  if (unused.length > 0) throw new Error(`no document has a place for ${unused.join(', ')}`);
  return texts;
}

async function main() {
  /** @type {Load} */
  const load = (name) => import(`../dist/${name}.js`);
  const { startPostgres } = await load('dev/embedded-postgres');
  const { migrateUp } = await load('database/migrate');
  const server = await startPostgres();
  const client = new pg.Client({ connectionString: server.url });
  try {
    await migrateUp({ url: server.url });
    await client.connect();
    const texts = [
      ...filled(generatedFromSources, await sourceParts(load)),
      ...filled(generatedFromCatalog, await catalogParts(client, 'outbox', load)),
    ];
    for (const { file, text, wanted } of texts) {
      if (text !== wanted) writeFileSync(new URL(file, root), wanted);
      console.log(`${text === wanted ? 'current  ' : 'rewritten'} ${file}`);
    }
    writeFileSync(new URL('llms.txt', root), llmsText());
  } finally {
    await client.end();
    await server.remove();
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) await main();
