// Migration files for an application's own tool: one file for each step, named and laid out as the tool expects it.
// Existing files are kept; only Drizzle's journal gets entries added.

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';

import { ConfigurationError } from '../core/errors.js';
import { version } from '../core/version.js';
import type { FileStep } from '../database/migration-steps.js';
import { nextNumbers } from './numbering.js';
import type { NumberingDefaults } from './numbering.js';
import type { PlannedFile } from './project-files.js';

type Layout = {
  numbering: NumberingDefaults;
  /** The numbers of existing files. */
  number: RegExp;
  /** The path below the directory. */
  path: (number: string, name: string) => string;
  text: (step: FileStep) => string;
};

const seconds: NumberingDefaults = { kind: 'seconds', firstIndex: 1, digits: 1 };
const leadingDigits = /^(\d+)_/;

const layouts = {
  plain: {
    numbering: seconds,
    number: leadingDigits,
    path: (number, name) => `${number}_${name}.sql`,
    text: ({ up }) => up,
  },
  drizzle: {
    numbering: { kind: 'index', firstIndex: 0, digits: 4 },
    number: leadingDigits,
    path: (number, name) => `${number}_${name}.sql`,
    text: ({ up }) => up,
  },
  prisma: {
    numbering: seconds,
    number: leadingDigits,
    path: (number, name) => `${number}_${name}/migration.sql`,
    text: ({ up }) => up,
  },
  'node-pg-migrate': {
    numbering: { kind: 'milliseconds', firstIndex: 1, digits: 4 },
    number: leadingDigits,
    path: (number, name) => `${number}_${name}.sql`,
    // without a down section, the tool refuses to revert
    text: ({ up, down }) =>
      `-- Up Migration\n${up}${down === undefined ? '' : `\n-- Down Migration\n${down ?? '-- Nothing to revert: older relays work with newer functions.\n'}`}`,
  },
  knex: {
    numbering: seconds,
    number: leadingDigits,
    // .cjs is loaded by projects of both module systems
    path: (number, name) => `${number}_${name}.cjs`,
    text: knexText,
  },
  flyway: {
    numbering: { kind: 'index', firstIndex: 1, digits: 1 },
    number: /^V(\d+)[\d._]*__/,
    path: (number, name) => `V${number}__${name}.sql`,
    text: ({ up }) => up,
  },
} satisfies Record<string, Layout>;

export type MigrationFormat = keyof typeof layouts;

export const migrationFormats = Object.keys(layouts) as MigrationFormat[];

export type MigrationFilesOptions = {
  format: MigrationFormat;
  directory: string;
  schema: string;
  steps: readonly FileStep[];
  now?: Date;
};

/** The files that a directory lacks, and those that it has already. Writes nothing. */
export function planMigrationFiles({
  format,
  directory,
  schema,
  steps,
  now = new Date(),
}: MigrationFilesOptions): PlannedFile[] {
  const layout: Layout = layouts[format];
  const names = existsSync(directory) ? readdirSync(directory) : [];
  const nameOf = (step: FileStep) => fileName(schema, step);
  const found = (step: FileStep) =>
    names.find((name) => path.parse(name).name.replace(/^V?[\d._]+/, '') === nameOf(step));
  const missing = steps.filter((step) => found(step) === undefined);
  const used = names.flatMap((name) => layout.number.exec(name)?.[1] ?? []);
  const numbers = nextNumbers(used, missing.length, now, layout.numbering);
  const files = steps.map((step): PlannedFile => {
    const existing = found(step);
    const number = numbers[missing.indexOf(step)] ?? '';
    const file = path.join(directory, existing ?? layout.path(number, nameOf(step)));
    if (existing !== undefined) refuseOtherSchema(file, schema);
    return {
      path: file,
      text: layout.text({ ...step, up: `${heading(schema, step)}${step.up}` }),
      exists: existing !== undefined,
    };
  });
  if (files.length === 0) return [];
  if (format === 'drizzle') return [...files, drizzleJournal(directory, files, now)];
  if (format === 'prisma') return [...files, prismaLock(directory)];
  return files;
}

/** The default schema is not named, so that most files have short names. */
function fileName(schema: string, { name }: FileStep): string {
  const part = schema.replaceAll(/[^\dA-Za-z]+/g, '_').toLowerCase();
  return part === 'outbox' ? `waybill_${name}` : `waybill_${part}_${name}`;
}

/** Names of files have fewer characters than names of schemas, so two schemas may have one name. */
function refuseOtherSchema(file: string, schema: string): void {
  if (!statSync(file).isFile()) return;
  const text = readFileSync(file, 'utf8');
  if (text.includes('-- Waybill ') && !text.includes(`, ${named(schema)}: `))
    throw new ConfigurationError(
      `${file} belongs to another schema than ${schema}: use another directory for its migrations`,
    );
}

const named = (schema: string): string => `schema ${schema.replaceAll(/\s/g, ' ')}`;

function heading(schema: string, { title }: FileStep): string {
  return `-- Waybill ${version}, ${named(schema)}: ${title}.
-- One statement, which is applied completely or not at all. Applying it again changes nothing. Do not edit it.
`;
}

type JournalEntry = {
  idx: number;
  version: string;
  when: number;
  tag: string;
  breakpoints: boolean;
};
type Journal = { version: string; dialect: string; entries: JournalEntry[] };

/** Drizzle applies only what its journal lists, and only entries that are newer than the last applied one. */
function drizzleJournal(directory: string, files: readonly PlannedFile[], now: Date): PlannedFile {
  const file = path.join(directory, 'meta', '_journal.json');
  const before = existsSync(file) ? readFileSync(file, 'utf8') : undefined;
  const journal: Journal =
    before !== undefined
      ? parseJournal(file, before)
      : { version: '7', dialect: 'postgresql', entries: [] };
  const entries = [...journal.entries];
  for (const { path: added } of files) {
    const tag = path.basename(added, '.sql');
    const last = entries.at(-1);
    if (entries.some((entry) => entry.tag === tag)) continue;
    entries.push({
      idx: (last?.idx ?? -1) + 1,
      version: journal.version,
      when: Math.max(now.getTime(), (last?.when ?? 0) + 1),
      tag,
      breakpoints: true,
    });
  }
  const isComplete = entries.length === journal.entries.length;
  return {
    path: file,
    text: `${JSON.stringify({ ...journal, entries }, null, 2)}\n`,
    exists: before !== undefined && isComplete,
    ...(before !== undefined && !isComplete && { previousText: before }),
  };
}

function parseJournal(file: string, text: string): Journal {
  try {
    const journal = JSON.parse(text) as Partial<Journal>;
    if (Array.isArray(journal.entries)) return journal as Journal;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new ConfigurationError(
    `${file} is not a journal of Drizzle: correct it, or name another directory with --out`,
  );
}

function prismaLock(directory: string): PlannedFile {
  const file = path.join(directory, 'migration_lock.toml');
  const text = `# Please do not edit this file manually
# It should be added in your version-control system (e.g., Git)
provider = "postgresql"
`;
  return { path: file, text, exists: existsSync(file) };
}

/** Knex takes ? for a placeholder unless it is escaped. */
function knexText({ up, down }: FileStep): string {
  const template = (sql: string): string =>
    `\`\n${sql.replaceAll('?', String.raw`\?`).replaceAll(/[\\`]|\$\{/g, String.raw`\$&`)}\``;
  const reverted =
    down === undefined
      ? `exports.down = () => Promise.reject(new Error('this migration cannot be reverted'));`
      : down === null
        ? '// Nothing to revert: older relays work with newer functions.\nexports.down = () => Promise.resolve();'
        : 'exports.down = (knex) => knex.raw(down);';
  return `const up = ${template(up)};
${down ? `\nconst down = ${template(down)};\n` : ''}
exports.up = (knex) => knex.raw(up);
${reverted}
`;
}
