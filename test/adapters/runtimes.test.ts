// Runtimes, each the real program: a producer enqueues with a driver in its transaction, and the drain handler, served
// over HTTP by the runtime itself, delivers to a function and to a webhook, and reads a stream.

import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';

import { beforeAll, describe, expect, test } from 'vitest';

import { temporaryDirectory, runProgram } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { testDatabase } from '../support/postgres.js';
import { serve } from '../support/relay-partner.js';
import { untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';
import { librariesMissing } from './installed.js';
import { denoFlags, programOf } from './runtime-programs.js';

const db = testDatabase();
const token = randomBytes(32).toString('hex');
const examples = path.resolve('test/adapters/generated/examples');

const runtimes = [
  { name: 'deno', program: programOf('@deno', 'deno'), flags: denoFlags },
  { name: 'bun', program: programOf('@oven', 'bin', 'bun'), flags: ['--no-install'] },
  { name: 'node', program: process.execPath, flags: [] },
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

describe.each(runtimes)('$name', ({ name, program = '', flags }) => {
  const isMissing = missing !== null || program === '';

  beforeAll(async () => {
    await db.query(
      'CREATE TABLE IF NOT EXISTS users (id serial PRIMARY KEY, email text NOT NULL UNIQUE)',
    );
  });

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
      const server = run(path.join(examples, 'runtimes', `${name}.mjs`), [], {
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

      const drivers = ['node-postgres', 'postgres-js'];
      for (const driver of drivers) {
        const example = pathToFileURL(path.join(examples, 'adapters', `${driver}.mjs`)).href;
        const email = `${driver}@${name}.example.com`;
        const script = path.resolve('test/adapters/register.mjs');
        const { code, stdout, stderr } = await run(script, [example, email]).ended();
        expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
        const { rows } = await db.query('SELECT payload FROM outbox.messages WHERE id = $1', [
          stdout.trim(),
        ]);
        expect(rows).toMatchObject([{ payload: { email } }]);
      }

      expect(await drain('wrong')).toMatchObject({ status: 401 });
      expect(await drain(token)).toMatchObject({
        status: 200,
        body: { processed: 6, succeeded: 6, failed: 0, finished: true, heldCursors: [] },
      });
      for (const driver of drivers) await server.says(`welcome ${driver}@${name}.example.com`);
      await server.says('indexed 2');
      expect(partner.bodies).toHaveLength(2);
      await untilPlaces(db, 'partner', { waiting: 0, leased: 0, dead: 0 });
    },
    120_000,
  );
});
