// Runs once before the tests of a project. It starts the project's PostgreSQL, or uses the server that another
// project has started, and migrates the template from which the database of every test file is cloned. The last
// project to finish stops the server.

import { existsSync, mkdirSync, rmSync, statfsSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import type { TestProject } from 'vitest/node';

import { migrateUp } from '../../src/database/migrate.js';
import { installRoles } from '../../src/database/roles.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import type { PostgresOptions, PostgresServer } from '../../src/dev/embedded-postgres.js';
import { keepFewPartitions } from './few-partitions.js';
import { makeLogins, rolePrefix } from './logins.js';
import { databaseUrl, withAllPartitions, withoutRoles } from './postgres.js';
import { programsOf } from './postgres-versions.js';

type SharedServer = {
  server: PostgresServer;
  users: number;
  /** The names of the templates, by schema and partitions. */
  templates: Map<string, string>;
};

// Each project loads its own copy of this module, so shared servers are stored on the process.
const registryKey = Symbol.for('waybill.test.servers');
const holder = globalThis as { [registryKey]?: Map<string, SharedServer> };
const servers = (holder[registryKey] ??= new Map<string, SharedServer>());

const settings = {
  fsync: 'off',
  synchronous_commit: 'on',
  max_connections: '200',
  shared_buffers: '128MB',
  max_wal_size: '256MB',
  // compiling the expressions of a statement takes longer than any statement of a test
  jit: 'off',
};

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { postgresMajor, server, schema, fewPartitions } = project.getProvidedContext();
  const shared = servers.get(server) ?? (await start(server, postgresMajor));
  shared.users += 1;
  const templateDatabase = await templateOf(shared, schema, fewPartitions);
  project.provide('serverUrl', shared.server.url);
  project.provide('templateDatabase', templateDatabase);
  return async () => {
    shared.users -= 1;
    if (shared.users > 0) return;
    servers.delete(server);
    await shared.server.remove();
  };
}

/** Projects with the same schema and partitions share a template: making one takes seconds of processor time. */
async function templateOf(
  { server, templates }: SharedServer,
  schema: string,
  fewPartitions: boolean,
): Promise<string> {
  const kind = JSON.stringify([schema, fewPartitions]);
  const made = templates.get(kind);
  if (made !== undefined) return made;
  const name = `waybill_template_${templates.size + 1}`;
  await makeTemplates(server.url, name, schema, fewPartitions);
  templates.set(kind, name);
  return name;
}

async function start(name: string, major: number): Promise<SharedServer> {
  const logFile = path.resolve('coverage', `postgres-${name}.log`);
  mkdirSync(path.dirname(logFile), { recursive: true });
  rmSync(logFile, { force: true });
  const options = { settings, logFile, ...programsOf(major) };
  const server = (await startInMemory(options)) ?? (await startPostgres(options));
  const shared = { server, users: 0, templates: new Map<string, string>() };
  servers.set(name, shared);
  if (!server.version.startsWith(`${major}.`)) {
    await server.remove();
    throw new Error(`the tests want PostgreSQL ${major} but found ${server.version}`);
  }
  return shared;
}

/**
 * Every test file clones a database of some thousand small files. That takes a second on a disk and almost no time in
 * memory. The disk is used where memory is scarce or mounted without execute permission.
 */
async function startInMemory(options: PostgresOptions): Promise<PostgresServer | undefined> {
  const memory = '/dev/shm';
  if (!existsSync(memory)) return undefined;
  const { bavail, bsize } = statfsSync(memory);
  if (bavail * bsize < 2 * 1024 ** 3) return undefined;
  const { TMPDIR } = process.env;
  process.env['TMPDIR'] = memory;
  try {
    return await startPostgres(options);
  } catch {
    return undefined;
  } finally {
    if (TMPDIR === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = TMPDIR;
  }
}

async function makeTemplates(
  serverUrl: string,
  name: string,
  schema: string,
  fewPartitions: boolean,
): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  const all = withAllPartitions(name);
  const bare = withoutRoles(name);
  const copy = (from: string, to: string) =>
    client.query(`create database ${to} template ${from} strategy file_copy`);
  try {
    await client.query(`create database ${all}`);
    const url = databaseUrl(serverUrl, all);
    await migrateUp({ url, schema });
    await copy(all, bare);
    await installRoles({ url, schema }, rolePrefix);
    await makeLogins(client);
    await copy(all, name);
    if (fewPartitions)
      for (const template of [name, bare])
        await keepFewPartitions(databaseUrl(serverUrl, template), schema);
    // No client may connect to a template while it is being cloned.
    for (const template of [name, bare, all])
      await client.query(
        `alter database ${template} with is_template true allow_connections false`,
      );
  } finally {
    await client.end();
  }
}
