// SQL reference generator. Columns and signatures come from the catalog of a migrated database, so they are what a
// caller finds. The descriptions come from the comments above each object in sql/, or from docs-sql-groups.mjs.

import { readdirSync, readFileSync } from 'node:fs';

import { groups, ownWords } from './docs-sql-groups.mjs';

/**
 * @typedef {{ query: (sql: string, values: unknown[]) => Promise<{ rows: Record<string, string>[] }> }} Client
 * @typedef {{ relations: Record<string, string>[], functions: Record<string, string>[] }} Catalog
 */

/**
 * @param {Client} client @param {string} schema @param {import('./docs.mjs').Load} load
 * @returns {Promise<Record<string, string>>}
 */
export async function sqlTables(client, schema, load) {
  const comments = readComments();
  const { relations, functions } = await readCatalog(client, schema);
  const all = await allGroups(load);
  const placed = new Set(Object.values(all).flat());
  const internals = functions.map(({ name = '' }) => name).filter((name) => !placed.has(name));
  const parts = Object.entries({ ...all, internals }).map(([group, names]) => [
    `functions-${group}`,
    names
      .map((name) => functionText(name, functions, comments, group === 'internals'))
      .join(group === 'internals' ? '\n' : '\n\n'),
  ]);
  return {
    ...Object.fromEntries(parts),
    ...(await roleTables(client)),
    ...(await featureTables(client, load)),
    tables: relationTexts('table', relations, comments),
    views: relationTexts('view', relations, comments),
    types: relationTexts('type', relations, comments),
  };
}

/**
 * The groups of the core, with the functions that features add.
 * @param {import('./docs.mjs').Load} load @returns {Promise<Record<string, string[]>>}
 */
async function allGroups(load) {
  const { features } = await load('features/all');
  /** @type {Record<string, string[]>} */
  const all = { ...groups };
  for (const { functions = {} } of features)
    for (const [group, names] of Object.entries(functions))
      all[group] = [...(all[group] ?? []), .../** @type {string[]} */ (names)];
  return all;
}

/** The rights of each role, from the function that the grants are made from. @param {Client} client */
async function roleTables(client) {
  const { rows } = await client.query(
    `SELECT k.role, k.purpose,
            (SELECT string_agg(format('\`%s\`', w.object), ', ' ORDER BY w.object) FROM role_rights() w WHERE w.role = k.role AND w.kind = 'function') AS functions,
            (SELECT string_agg(format('\`%s\`', w.object), ', ' ORDER BY w.object) FROM role_rights() w WHERE w.role = k.role AND w.kind = 'table') AS tables
       FROM role_kinds() WITH ORDINALITY k(role, purpose, place) ORDER BY k.place`,
    [],
  );
  const table = (/** @type {string[]} */ head, /** @type {(string | undefined)[][]} */ lines) =>
    [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
  return {
    roles: table(
      ['role', 'what it is for'],
      rows.map(({ role, purpose }) => [`\`${role}\``, purpose]),
    ),
    'role-functions': table(
      ['role', 'may call'],
      rows
        .filter((row) => row['functions'])
        .map(({ role, functions }) => [`\`${role}\``, functions]),
    ),
    'role-tables': table(
      ['role', 'may read'],
      rows.filter((row) => row['tables']).map(({ role, tables }) => [`\`${role}\``, tables]),
    ),
  };
}

/**
 * Tables of features. Uses the search path that readCatalog has set.
 * @param {Client} client @param {import('./docs.mjs').Load} load
 */
async function featureTables(client, load) {
  const { features } = await load('features/all');
  /** @type {Record<string, string>} */
  const tables = {};
  for (const { queried = {} } of features) {
    for (const [name, { head, sql }] of Object.entries(queried)) {
      const { rows } = await client.query(sql, []);
      const start = [`| ${head.join(' | ')} |`, `|${'---|'.repeat(head.length)}`];
      tables[name] = [...start, ...rows.map(({ line }) => line)].join('\n');
    }
  }
  return tables;
}

/** Sets the search path, so that PostgreSQL shows names without the schema. @param {Client} client @param {string} schema @returns {Promise<Catalog>} */
async function readCatalog(client, schema) {
  await client.query(`SELECT set_config('search_path', quote_ident($1), false)`, [schema]);
  const { rows: relations } = await client.query(
    `SELECT CASE WHEN c.relkind = 'v' THEN 'view' ELSE 'table' END AS kind, c.relname AS name,
            string_agg(format('%s %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
              CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END), E'\\n' ORDER BY a.attnum) AS body
       FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
      GROUP BY 1, 2
      UNION ALL
     SELECT 'type', t.typname, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder)
       FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = $1::text::regnamespace GROUP BY 2
      ORDER BY 2`,
    [quoted(schema)],
  );
  const { rows: functions } = await client.query(
    `SELECT p.proname AS name, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
       FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace ORDER BY 1`,
    [quoted(schema)],
  );
  return { relations, functions };
}

/** @param {string} name */
function quoted(name) {
  return `"${name.replaceAll('"', '""')}"`;
}

/** The comment above each CREATE in sql/, as one paragraph per blank comment line. @returns {Map<string, string>} */
function readComments() {
  const root = new URL('../sql/', import.meta.url);
  const comments = new Map();
  const object =
    /((?:^--.*\n)*)(?:^ *(?:EXECUTE.*)?CREATE (?:OR REPLACE )?)(TABLE|TYPE|FUNCTION|VIEW) (\w+)/gm;
  for (const folder of ['migrations', 'functions', 'views']) {
    for (const file of readdirSync(new URL(folder, root), {
      recursive: true,
      encoding: 'utf8',
    }).toSorted()) {
      if (!file.endsWith('.sql') || file.endsWith('.down.sql')) continue;
      const text = readFileSync(new URL(`${folder}/${file}`, root), 'utf8');
      for (const [, comment = '', , name] of text.matchAll(object)) {
        const words = comment
          .split('\n')
          .map((line) => line.replace(/^-- ?/, '').trim() || '\n\n')
          .join(' ')
          .replaceAll(/\s*\n\n\s*/g, '\n\n')
          .trim();
        if (words !== '' || !comments.has(name)) comments.set(name, words);
      }
    }
  }
  return comments;
}

/** @param {string} name @param {Record<string, string>[]} functions @param {Map<string, string>} comments @param {boolean} short */
function functionText(name, functions, comments, short) {
  const found = functions.filter((row) => row['name'] === name);
  const [row] = found;
  if (row === undefined) throw new Error(`${name} has a group, and is no longer in sql/functions`);
  if (found.length > 1)
    throw new Error(`${name} exists ${found.length} times: a change of arguments left one behind`);
  const comment = ownWords[name] ?? comments.get(name) ?? '';
  if (short) return `- \`${name}\`${comment === '' ? '' : `: ${comment.split(/(?<=[.]) /)[0]}`}`;
  if (comment === '') throw new Error(`${name} has no comment in sql/functions, and no words here`);
  const given = splitArguments(row['arguments'] ?? '').filter((each) => !each.startsWith('OUT '));
  const results = splitArguments(row['arguments'] ?? '')
    .filter((each) => each.startsWith('OUT '))
    .map((each) => each.slice('OUT '.length));
  const result = results.length > 0 ? `TABLE(${results.join(', ')})` : (row['result'] ?? '');
  const signature = shortened(`${name}(${given.join(', ')}) → ${result}`);
  return [`**\`${name}\`**`, '```text', wrapped(signature), '```', comment].join('\n');
}

/** @param {string} kind @param {Record<string, string>[]} relations @param {Map<string, string>} comments */
function relationTexts(kind, relations, comments) {
  return relations
    .filter((relation) => relation['kind'] === kind)
    .map(({ name = '', body = '' }) =>
      [
        `**\`${name}\`**`,
        '```text',
        shortened(body),
        '```',
        ...orNothing(ownWords[name] ?? comments.get(name)),
      ].join('\n'),
    )
    .join('\n\n');
}

/** @param {string | undefined} comment */
function orNothing(comment) {
  return comment === undefined || comment === '' ? [] : [comment];
}

/** Splits at commas outside parentheses. @param {string} list */
function splitArguments(list) {
  return list === '' ? [] : list.split(/, (?![^(]*\))/);
}

/** @param {string} text */
function shortened(text) {
  return text
    .replaceAll('timestamp with time zone', 'timestamptz')
    .replaceAll('double precision', 'float8')
    .replaceAll(/\binteger\b/g, 'int')
    .replaceAll(/::(\w+)(\[\])?(?=[,)]| →|$)/g, '');
}

/** @param {string} signature */
function wrapped(signature) {
  if (signature.length <= 110) return signature;
  const lines = [''];
  for (const word of signature.split(/(?<=, )|(?= → )/)) {
    const last = lines.length - 1;
    if ((lines[last] + word).length > 108 && lines[last] !== '')
      lines.push(`    ${word.trimStart()}`);
    else lines[last] += word;
  }
  return lines.map((line) => line.trimEnd()).join('\n');
}
