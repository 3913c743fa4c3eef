// Project detection for `waybill init`: package manager, TypeScript, database library and migration tool, from the files
// of a project. It reads files only, and runs nothing of the project.

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { ConfigurationError } from '../core/errors.js';
import type { MigrationFormat } from './migration-files.js';

export type PackageManager = 'npm' | 'pnpm' | 'yarn' | 'bun';
export type Library =
  | 'drizzle-orm/node-postgres'
  | 'drizzle-orm/postgres-js'
  | 'prisma'
  | 'kysely'
  | 'knex'
  | 'typeorm'
  | 'postgres'
  | 'pg';

/** Where migrations go, relative to the project; null: none, so `waybill migrate up` is used. */
export type MigrationTool = { format: MigrationFormat; directory: string } | null;

export type Project = {
  packageManager: PackageManager;
  typescript: boolean;
  /** Whether .ts and .js files are ES modules here. */
  isModule: boolean;
  library: Library;
  tool: MigrationTool;
  /** Prisma only. */
  prisma: PrismaClient | null;
  hasWaybill: boolean;
  hasSource: boolean;
};

export type PrismaClient = {
  /** The generated file, relative to the project; null: the package @prisma/client. */
  file: string | null;
  /** Whether the project has the driver adapter for pg. */
  hasAdapter: boolean;
};

type Package = {
  type?: string;
  packageManager?: string;
  scripts?: Record<string, string>;
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
};

const lockFiles: [string, PackageManager][] = [
  ['pnpm-lock.yaml', 'pnpm'],
  ['yarn.lock', 'yarn'],
  ['bun.lock', 'bun'],
  ['bun.lockb', 'bun'],
  ['package-lock.json', 'npm'],
  ['npm-shrinkwrap.json', 'npm'],
];

export function detectProject(directory: string): Project {
  const described = readPackage(directory);
  const installed = new Set(
    [described.dependencies, described.devDependencies, described.peerDependencies].flatMap(
      (group) => Object.keys(group ?? {}),
    ),
  );
  const files = new ProjectReader(directory);
  const library = libraryOf(installed);
  return {
    packageManager: packageManagerOf(directory, described),
    typescript: files.has('tsconfig.json') || installed.has('typescript'),
    isModule: described.type === 'module',
    library,
    tool: toolOf(files, described, installed),
    prisma: library === 'prisma' ? prismaOf(files, installed) : null,
    hasWaybill: installed.has('waybill'),
    hasSource: files.has('src'),
  };
}

function readPackage(directory: string): Package {
  const file = path.join(directory, 'package.json');
  if (!existsSync(file))
    throw new ConfigurationError(
      `there is no package.json in ${directory}: run the command in your project, or name its directory`,
    );
  try {
    const described: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (typeof described === 'object' && described !== null) return described;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new ConfigurationError(`${file} is not a JSON object: correct it first`);
}

/** As declared in package.json, or by the nearest lock file: that of a workspace is in a directory above. */
function packageManagerOf(directory: string, { packageManager = '' }: Package): PackageManager {
  const declared = lockFiles.find(([, name]) => packageManager.startsWith(`${name}@`));
  if (declared !== undefined) return declared[1];
  for (let place = path.resolve(directory); ; place = path.dirname(place)) {
    const found = lockFiles.find(([file]) => existsSync(path.join(place, file)));
    if (found !== undefined) return found[1];
    if (existsSync(path.join(place, '.git')) || place === path.dirname(place)) return 'npm';
  }
}

function libraryOf(installed: ReadonlySet<string>): Library {
  if (installed.has('drizzle-orm'))
    return installed.has('postgres') && !installed.has('pg')
      ? 'drizzle-orm/postgres-js'
      : 'drizzle-orm/node-postgres';
  if (installed.has('@prisma/client') || installed.has('prisma')) return 'prisma';
  for (const name of ['kysely', 'knex', 'typeorm'] as const) if (installed.has(name)) return name;
  return installed.has('postgres') && !installed.has('pg') ? 'postgres' : 'pg';
}

/** Reads the text files of a project; a missing file is empty. */
class ProjectReader {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  has(file: string): boolean {
    return existsSync(path.join(this.#directory, file));
  }

  /** The text of the first of these files that exists. */
  text(...names: string[]): string | undefined {
    const found = names.find((name) => this.has(name));
    return found === undefined
      ? undefined
      : readFileSync(path.join(this.#directory, found), 'utf8');
  }
}

const scriptEndings = ['ts', 'mts', 'js', 'mjs', 'cjs'];

function configNames(name: string): string[] {
  return scriptEndings.map((ending) => `${name}.${ending}`);
}

function toolOf(
  files: ProjectReader,
  { scripts = {} }: Package,
  installed: ReadonlySet<string>,
): MigrationTool {
  const prismaSchema = prismaSchemaOf(files);
  if (prismaSchema !== undefined) {
    const config = files.text(...configNames('prisma.config')) ?? '';
    const chosen = match(/migrations\s*:\s*\{[^}]*?path\s*:\s*['"`]([^'"`]+)/, config);
    const directory = chosen ?? path.join(path.dirname(prismaSchema), 'migrations');
    return { format: 'prisma', directory };
  }
  const drizzle = files.text(...configNames('drizzle.config'), 'drizzle.config.json');
  if (drizzle !== undefined || installed.has('drizzle-kit'))
    return {
      format: 'drizzle',
      directory: match(/\bout['"]?\s*:\s*['"`]([^'"`]+)/, drizzle ?? '') ?? 'drizzle',
    };
  if (installed.has('node-pg-migrate')) {
    const used = Object.values(scripts).join('\n');
    const directory = match(/(?:-m|--migrations-dir)[ =](\S+)/, used) ?? 'migrations';
    return { format: 'node-pg-migrate', directory };
  }
  const knex = files.text(...configNames('knexfile'));
  if (knex !== undefined)
    return {
      format: 'knex',
      directory: match(/\bdirectory\s*:\s*['"`]([^'"`]+)/, knex) ?? 'migrations',
    };
  const flyway = files.text('flyway.toml', 'flyway.conf', 'conf/flyway.conf');
  if (flyway !== undefined)
    return { format: 'flyway', directory: match(/filesystem:([^\s"',\]]+)/, flyway) ?? 'sql' };
  return null;
}

function prismaSchemaOf(files: ProjectReader): string | undefined {
  const config = files.text(...configNames('prisma.config')) ?? '';
  const chosen = match(/\bschema\s*:\s*['"`]([^'"`]+\.prisma)/, config);
  return [chosen, 'prisma/schema.prisma', 'schema.prisma'].find(
    (file) => file !== undefined && files.has(file),
  );
}

/** The generator `prisma-client` writes TypeScript; `prisma-client-js` writes JavaScript, by default into a package. */
function prismaOf(files: ProjectReader, installed: ReadonlySet<string>): PrismaClient {
  const schema = prismaSchemaOf(files);
  const text = schema === undefined ? '' : (files.text(schema) ?? '');
  const generator = match(/(generator\s+\w+\s*\{[^}]*\bprisma-client(?:-js)?"[^}]*\})/, text) ?? '';
  const output = match(/\boutput\s*=\s*"([^"]+)"/, generator);
  const entry = generator.includes('"prisma-client-js"') ? 'index.js' : 'client.ts';
  return {
    file:
      schema === undefined || output === undefined
        ? null
        : path.posix.join(path.posix.dirname(schema), output, entry),
    hasAdapter: installed.has('@prisma/adapter-pg'),
  };
}

function match(pattern: RegExp, text: string): string | undefined {
  return pattern.exec(text)?.[1];
}
