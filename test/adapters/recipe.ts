// Runs the recipes of examples/recipes: installs each as a project of its own with the packed package, and checks that
// a request leads to one delivery, and that a transaction which fails at its commit leaves nothing behind.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { expect } from 'vitest';

import { runNode, temporaryDirectory } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import type { TestDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

export const recipes = path.resolve('examples/recipes');

/** Packs the package once for all recipes. */
export function packWaybill(): { file: string; remove: () => void } {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-packed-'));
  const names = execFileSync('npm', ['pack', '--silent', '--pack-destination', directory], {
    encoding: 'utf8',
  });
  const file = path.join(directory, names.trim().split('\n').at(-1) ?? '');
  return { file, remove: () => rmSync(directory, { recursive: true }) };
}

export function copy(name: string): string {
  const directory = temporaryDirectory();
  cpSync(path.join(recipes, name), directory, { recursive: true });
  return directory;
}

/** A copy of a recipe in which the packages that it names are installed. */
export function install(name: string, packed: string): string {
  const directory = copy(name);
  const file = path.join(directory, 'package.json');
  const text = readFileSync(file, 'utf8');
  // the real name, from the packed file instead of the registry
  writeFileSync(file, text.replace(/"waybill": ".*"/, `"waybill": "file:${packed}"`));
  execFileSync('npm', ['install', '--silent', '--omit=dev', '--no-audit', '--no-fund'], {
    cwd: directory,
  });
  return directory;
}

/** Refuses some users when their transaction commits, after the message was enqueued. */
export const refusingAtCommit = `
  CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    RAISE EXCEPTION 'refused at commit';
  END $$;
  CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON users
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.email LIKE 'refused%') EXECUTE FUNCTION refuse()`;

/** Starts the recipe's relay, with its own configuration, and waits until it runs. */
export async function startRelay(db: TestDatabase, cwd: string): Promise<Running> {
  const waybill = path.join(cwd, 'node_modules/waybill/dist/cli/main.js');
  const relay = runNode([waybill, 'start'], { cwd, environment: { DATABASE_URL: db.url } });
  await untilRouted(db, relay);
  return relay;
}

async function untilRouted(db: TestDatabase, deliverer: Running): Promise<void> {
  await waitFor(
    async () => {
      if (deliverer.process.exitCode !== null) throw new Error(deliverer.stdout + deliverer.stderr);
      return ((await db.query(`SELECT FROM ${db.quoted}.routes`)).rowCount ?? 0) > 0;
    },
    { what: 'the first route', timeoutMs: 60_000 },
  );
}

/** Starts the recipe's server as `npm start` does, on a free port. */
export async function startServer(db: TestDatabase, cwd: string): Promise<string> {
  const { scripts } = JSON.parse(readFileSync(path.join(cwd, 'package.json'), 'utf8')) as {
    scripts: { start: string };
  };
  const [program, ...args] = scripts.start.split(' ');
  expect(program).toBe('node');
  const port = String(await freePort());
  const server = runNode(args, { cwd, environment: { DATABASE_URL: db.url, PORT: port } });
  return answering(server, `http://127.0.0.1:${port}`);
}

/** Waits until the server answers anything at all. */
export async function answering(server: Running, url: string): Promise<string> {
  await waitFor(
    async () => {
      if (server.process.exitCode !== null) throw new Error(server.stdout + server.stderr);
      return fetch(url).then(Boolean, () => false);
    },
    { what: 'an answer of the server', timeoutMs: 60_000 },
  );
  return `${url}/users`;
}

/** Registers a user and sees the welcome; a user who is refused at the commit leaves no message. */
export async function expectDelivered(
  db: TestDatabase,
  url: string,
  deliverer: Running,
): Promise<void> {
  const register = (email: string): Promise<Response> =>
    fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email }),
    });
  const refused = await register('refused@example.com');
  expect(refused.status, await refused.text()).toBe(500);
  const accepted = await register('ada@example.com');
  const answer = await accepted.text();
  expect(accepted.status, answer).toBe(201);
  await deliverer.says('welcome ada@example.com');
  const { rows: users } = await db.query('SELECT id AS "userId", email FROM users');
  expect(users).toMatchObject([{ email: 'ada@example.com' }]);
  const { rows } = await db.query(`SELECT id, payload FROM ${db.quoted}.messages`);
  expect(rows).toEqual([{ ...(JSON.parse(answer) as object), payload: users[0] }]);
  const statuses = `SELECT status, tries FROM ${db.quoted}.message_status`;
  await waitFor(
    async () => (await db.query(statuses)).rows.every(({ status }) => status === 'delivered'),
    { what: 'the delivery' },
  );
  expect((await db.query(statuses)).rows).toEqual([{ status: 'delivered', tries: 1 }]);
  expect(deliverer.stdout + deliverer.stderr).not.toContain('refused@example.com');
}

/** Starts a program of the recipe, by its name. */
export type Start = (program: string, environment: Record<string, string>) => Running;

/** A worker in another language delivers what a producer in that language enqueues. */
export async function expectWorkerDelivers(
  db: TestDatabase,
  start: Start,
  producer: string,
): Promise<void> {
  const worker = start('worker', { DATABASE_URL: db.url });
  await untilRouted(db, worker);
  const port = String(await freePort());
  const server = start(producer, { DATABASE_URL: db.url, PORT: port });
  await expectDelivered(db, await answering(server, `http://127.0.0.1:${port}`), worker);
}
