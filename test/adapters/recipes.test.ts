// The recipes of docs/start/recipes, each as a project of its own with the packages that it names: a request writes a
// user and a message, and the message is delivered. Only with `--mode full`: installing takes minutes.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';

import { runNode, runProgram, temporaryDirectory } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { testDatabase } from '../support/postgres.js';
import { librariesMissing } from './installed.js';
import {
  answering,
  copy,
  expectDelivered,
  expectWorkerDelivers,
  install,
  packWaybill,
  recipes,
  refusingAtCommit,
  startRelay,
  startServer,
} from './recipe.js';
import type { Start } from './recipe.js';
import { denoFlags, programOf } from './runtime-programs.js';
import { serveBundledWorker } from './workerd.js';

const isFull = inject('isFull');
if (!isFull) console.warn('The recipes are left out: npm run test:full installs and runs them.');

function isMissing(program: string, flag = '--version'): boolean {
  if (!isFull) return true;
  try {
    execFileSync(program, [flag], { stdio: 'ignore' });
    return false;
  } catch {
    console.warn(`The recipe that needs ${program} is left out: it is not installed.`);
    return true;
  }
}

/** The runtimes are packages of test/adapters. */
function isLeftOut(name: string, program: string | undefined): boolean {
  if (!isFull || librariesMissing() !== null) return true;
  if (program === undefined)
    console.warn(`The recipe in ${name} is left out: it has no package for this platform.`);
  return program === undefined;
}

const db = testDatabase({
  async eachTestFrom(url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(readFileSync(path.join(recipes, 'users.sql'), 'utf8'));
    await client.query(refusingAtCommit);
    await client.end();
  },
});

describe.skipIf(!isFull)('a recipe', { timeout: 400_000 }, () => {
  let packed = { file: '', remove: () => {} };
  beforeAll(() => {
    packed = packWaybill();
  });
  afterAll(() => packed.remove());

  test('M1 with Hono', async () => {
    const cwd = install('hono', packed.file);
    const relay = await startRelay(db, cwd);
    await expectDelivered(db, await startServer(db, cwd), relay);
  });

  test('M1 M11 with Drizzle', async () => {
    const cwd = install('drizzle', packed.file);
    await db.query(readFileSync(path.join(cwd, 'welcomes.sql'), 'utf8'));
    const relay = await startRelay(db, cwd);
    await expectDelivered(db, await startServer(db, cwd), relay);
    const { rows } = await db.query('SELECT email FROM welcomes');
    expect(rows).toEqual([{ email: 'ada@example.com' }]);
  });

  test('M1 with Prisma', async () => {
    const cwd = install('prisma', packed.file);
    // generating a client needs no schema engine, which Prisma would download
    execFileSync('npm', ['run', 'build'], {
      cwd,
      env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: '/bin/true', CHECKPOINT_DISABLE: '1' },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const relay = await startRelay(db, cwd);
    await expectDelivered(db, await startServer(db, cwd), relay);
  });

  test.skipIf(isMissing('python3'))('M1 C1 with Python and psycopg, without a relay', async () => {
    const cwd = copy('python');
    execFileSync('python3', ['-m', 'venv', 'venv'], { cwd });
    const python = path.join(cwd, 'venv/bin/python');
    execFileSync(python, ['-m', 'pip', 'install', '--quiet', '-r', 'requirements.txt'], { cwd });
    const start: Start = (script, environment) =>
      runProgram(python, [`${script}.py`], { cwd, environment });
    await expectWorkerDelivers(db, start, 'server');
  });

  test.skipIf(isMissing('go', 'version'))('M1 C1 with Go and pgx, without a relay', async () => {
    const cwd = copy('go');
    // compiled first: stopping `go run` would leave the program running
    execFileSync('go', ['build', '-o', 'bin/', './...'], { cwd });
    const start: Start = (program, environment) =>
      runProgram(path.join(cwd, 'bin', program), [], { cwd, environment });
    await expectWorkerDelivers(db, start, 'producer');
  });

  const workerd = programOf('@cloudflare', 'bin', 'workerd');
  test.skipIf(isLeftOut('workerd', workerd))('M1 as a Cloudflare Worker', async () => {
    const cwd = install('cloudflare-worker', packed.file);
    const relay = await startRelay(db, cwd);
    const worker = path.join(cwd, 'worker.mjs');
    const binding = { name: 'DATABASE_URL', text: db.url };
    const { url } = await serveBundledWorker(workerd ?? '', worker, binding);
    await expectDelivered(db, url, relay);
  });

  const deno = programOf('@deno', 'deno');
  test.skipIf(isLeftOut('deno', deno))('M1 as an edge function of Supabase', async () => {
    const cwd = install('supabase-function', packed.file);
    const relay = await startRelay(db, cwd);
    const port = await freePort();
    const server = runProgram(deno ?? '', [...denoFlags, 'supabase/functions/register/index.ts'], {
      cwd,
      environment: {
        SUPABASE_DB_URL: db.url,
        DENO_SERVE_ADDRESS: `tcp:127.0.0.1:${port}`,
        DENO_DIR: temporaryDirectory(),
        DENO_NO_UPDATE_CHECK: '1',
      },
    });
    await expectDelivered(db, await answering(server, `http://127.0.0.1:${port}`), relay);
  });

  test('M1 with Effect', async () => {
    const cwd = install('effect', packed.file);
    const relay = await startRelay(db, cwd);
    await expectDelivered(db, await startServer(db, cwd), relay);
    const outside = `
      import { PgClient } from '@effect/sql-pg';
      import { Effect, Redacted } from 'effect';
      import { enqueue } from './enqueue.mjs';
      const layer = PgClient.layer({ url: Redacted.make(process.env.DATABASE_URL) });
      await Effect.runPromise(enqueue({ topic: 'user.registered' }).pipe(Effect.provide(layer)));`;
    const environment = { DATABASE_URL: db.url };
    const script = runNode(['--input-type=module', '-e', outside], { cwd, environment });
    expect((await script.ended()).stderr).toContain('not in a transaction');
  });
});
