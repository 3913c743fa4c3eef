// Runtimes, each the real program: a producer enqueues with a driver in its transaction, and the drain handler, served
// over HTTP by the runtime itself, delivers to a function and to a webhook, and reads a stream. Workers of Cloudflare
// only produce. docs/start/runtimes.md has the results.

import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';

import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';

import { temporaryDirectory, runProgram } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { testDatabase } from '../support/postgres.js';
import { serve } from '../support/relay-partner.js';
import { untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';
import { librariesMissing } from './installed.js';
import { denoFlags, programOf } from './runtime-programs.js';
import { serveBundledWorker } from './workerd.js';

const db = testDatabase();
const token = randomBytes(32).toString('hex');
const examples = path.resolve('test/adapters/generated/examples');

/** Other versions of Node are installed for the test, so only with `--mode full`; the first is the oldest supported. */
const nodeVersions = inject('isFull') ? ['20.19.0', '22', '24'] : [];
const nodes = mkdtempSync(path.join(os.tmpdir(), 'waybill-nodes-'));
afterAll(() => rmSync(nodes, { recursive: true }));
const isWindows = process.platform === 'win32';

type Runtime = { name: string; example: string; program: string | undefined; flags: string[] };
const runtimes: Runtime[] = [
  { name: 'deno', example: 'deno', program: programOf('@deno', 'deno'), flags: denoFlags },
  {
    name: 'bun',
    example: 'bun',
    program: programOf('@oven', 'bin', 'bun'),
    flags: ['--no-install'],
  },
  { name: 'node', example: 'node', program: process.execPath, flags: [] },
  ...nodeVersions.map((version) => ({
    name: `node-${version}`,
    example: 'node',
    program: path.join(
      nodes,
      'node_modules',
      `node-${version}`,
      'bin',
      isWindows ? 'node.exe' : 'node',
    ),
    flags: [],
  })),
];

const missing = librariesMissing();
for (const { name, program } of runtimes) {
  if (missing !== null || program !== undefined) continue;
  if (process.env['CI']) throw new Error(`${name} is not installed in test/adapters`);
  console.warn(`The tests with ${name} are left out: it has no package for this platform.`);
}

/** A partner that accepts everything and keeps the bodies. */
async function openPartner(): Promise<{ url: string; bodies: string[] }> {
  const bodies: string[] = [];
  const { url } = await serve((request, response) => {
    void text(request).then((body) => {
      bodies.push(body);
      response.end();
    });
  });
  return { url, bodies };
}

beforeAll(async () => {
  await db.query('CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE)');
  if (nodeVersions.length === 0) return;
  const build = `node-${isWindows ? 'win' : process.platform}-${process.arch}`;
  const packages = nodeVersions.map((version) => `node-${version}@npm:${build}@${version}`);
  execFileSync('npm', ['install', '--silent', '--prefix', nodes, ...packages], {
    shell: isWindows,
  });
}, 300_000);

describe.each(runtimes)('$name', ({ name, example: file, program = '', flags }) => {
  const isMissing = missing !== null || program === '';

  const run = (script: string, args: string[], environment: Record<string, string> = {}) =>
    runProgram(program, [...flags, script, ...args], {
      environment: {
        DATABASE_URL: db.url,
        // what the runtime stores stays in a folder of the test
        DENO_DIR: temporaryDirectory(),
        DENO_NO_UPDATE_CHECK: '1',
        DO_NOT_TRACK: '1',
        ...environment,
      },
    });

  test.skipIf(isMissing)(
    'C7 C12 serves the drain handler, and delivers what it enqueued',
    async () => {
      const partner = await openPartner();
      const port = String(await freePort());
      const server = run(path.join(examples, 'runtimes', `${file}.mjs`), [], {
        DRAIN_TOKEN: token,
        PORT: port,
        PARTNER_URL: partner.url,
        PARTNER_SECRET: `whsec_${randomBytes(32).toString('base64')}`,
      });
      const drain = async (secret: string) => {
        const response = await fetch(`http://127.0.0.1:${port}/`, {
          method: 'POST',
          headers: { authorization: `Bearer ${secret}` },
        });
        return { status: response.status, body: (await response.json()) as object };
      };
      const first = await waitFor(
        async () => {
          if (server.process.exitCode !== null) throw new Error(server.stderr);
          return drain(token).catch(() => undefined);
        },
        { what: 'an answer', timeoutMs: 40_000 },
      );
      expect(first).toMatchObject({ status: 200, body: { processed: 0, finished: true } });

      const drivers = ['adapters/node-postgres', 'adapters/postgres-js'];
      if (name === 'bun') drivers.push('runtimes/bun-sql');
      const emailOf = (driver: string) => `${path.basename(driver)}@${name}.example.com`;
      for (const driver of drivers) {
        const example = pathToFileURL(path.join(examples, `${driver}.mjs`)).href;
        const email = emailOf(driver);
        const script = path.resolve('test/adapters/register.mjs');
        const { code, stdout, stderr } = await run(script, [example, email]).ended();
        expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
        const { rows } = await db.query('SELECT payload FROM outbox.messages WHERE id = $1', [
          stdout.trim(),
        ]);
        expect(rows).toMatchObject([{ payload: { email } }]);
      }

      expect(await drain('wrong')).toMatchObject({ status: 401 });
      // three destinations
      const processed = 3 * drivers.length;
      expect(await drain(token)).toMatchObject({
        status: 200,
        body: { processed, succeeded: processed, failed: 0, finished: true, heldCursors: [] },
      });
      for (const driver of drivers) await server.says(`welcome ${emailOf(driver)}`);
      await server.says(`indexed ${drivers.length}`);
      expect(partner.bodies).toHaveLength(drivers.length);
      await untilPlaces(db, 'partner', { waiting: 0, leased: 0, dead: 0 });
    },
    120_000,
  );
});

test.skipIf(missing !== null).each(nodeVersions)(
  'Node %s loads the producer with require',
  async (version) => {
    const { program = '' } = runtimes.find(({ name }) => name === `node-${version}`) ?? {};
    const script = `console.log(process.version, typeof require('waybill/producer').createOutbox)`;
    const { stdout, stderr } = await runProgram(program, ['-e', script], { cwd: examples }).ended();
    expect(stderr).toBe('');
    expect(stdout).toMatch(new RegExp(`^v${version}.* function\n$`));
  },
);

test.skipIf(missing !== null).each([
  ['node-postgres', path.join(examples, 'recipes/cloudflare-worker/worker.mjs')],
  ['postgres.js', path.resolve('test/adapters/generated/bundled/worker.mjs')],
])(
  'C12 a worker in workerd, the runtime of Cloudflare Workers, enqueues with %s',
  async (driver, worker) => {
    const program = programOf('@cloudflare', 'bin', 'workerd');
    if (program === undefined) {
      console.warn('The producer in workerd is left out: it has no package for this platform.');
      return;
    }
    const binding = { name: 'DATABASE_URL', text: db.url };
    const { url } = await serveBundledWorker(program, worker, binding);
    const email = `${driver}@workerd.example.com`;
    const register = () => fetch(url, { method: 'POST', body: JSON.stringify({ email }) });
    const response = await register();
    expect(response.status, await response.clone().text()).toBe(201);
    const { id } = (await response.json()) as { id: string };
    // this user exists: the transaction fails, and leaves no message
    expect((await register()).status).toBe(500);
    const { rows } = await db.query(
      `SELECT id FROM outbox.messages WHERE payload ->> 'email' = $1`,
      [email],
    );
    expect(rows).toEqual([{ id }]);
  },
);
