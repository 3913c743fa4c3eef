// Next.js, built and run: examples/nextjs as a project of its own, with the packed package, once with each of its two
// bundlers. Only with `--mode full`: installing and building take minutes.

import path from 'node:path';

import { beforeAll, expect, inject, test } from 'vitest';

import { runProgram } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { installExample } from './installed-example.js';
import { refusingAtCommit } from './recipe.js';

const db = testDatabase();
const isFull = inject('isFull');
if (!isFull) console.warn('Next.js is left out: npm run test:full builds and runs it.');

beforeAll(async () => {
  await db.query('CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE)');
  await db.query(refusingAtCommit);
});

/** Sends the form of the page as a browser without scripts does, which runs the server action. */
async function sendForm(url: string, email: string): Promise<number> {
  const page = await (await fetch(url)).text();
  const [, action = ''] = /name="(\$ACTION_ID_\w+)"/.exec(page) ?? [];
  expect(action, page).not.toBe('');
  const body = new FormData();
  body.set(action, '');
  body.set('email', email);
  return (await fetch(url, { method: 'POST', body })).status;
}

test.skipIf(!isFull)(
  'M1 C7 both bundlers build it, its server action and a route handler enqueue, and another delivers',
  { timeout: 600_000 },
  async () => {
    const cwd = installExample('nextjs', {
      next: '^16.4.6',
      pg: '^8.23.1',
      react: '^19.2.0',
      'react-dom': '^19.2.0',
    });
    const secret = 'long-enough-to-be-a-secret';
    const environment = {
      DATABASE_URL: db.url,
      CRON_SECRET: secret,
      NEXT_TELEMETRY_DISABLED: '1',
    };
    const next = path.join(cwd, 'node_modules/.bin/next');
    for (const [n, bundler] of ['--turbopack', '--webpack'].entries()) {
      const built = await runProgram(next, ['build', bundler], { cwd, environment }).ended(240_000);
      expect(built, built.stdout + built.stderr).toMatchObject({ code: 0 });
      const port = String(await freePort());
      const server = runProgram(next, ['start', '--port', port, '--hostname', '127.0.0.1'], {
        cwd,
        environment,
      });
      const url = `http://127.0.0.1:${port}/`;
      const ask = (route: string, init: RequestInit): Promise<Response> =>
        fetch(`${url}api/${route}`, init);
      const drain = async (): Promise<unknown> => {
        const response = await ask('drain', { headers: { authorization: `Bearer ${secret}` } });
        return response.json();
      };
      // the first drain also stores the routes
      const waiting = { what: 'an answer of the server' };
      await waitFor(() => drain().then(Boolean, () => false), waiting);
      const body = JSON.stringify({ email: `${n}@example.com` });
      expect(await ask('users', { method: 'POST', body })).toMatchObject({ status: 201 });
      expect(await drain()).toMatchObject({ succeeded: 1 });
      await server.says(`welcome ${n}@example.com`);
      expect(await sendForm(url, `refused-${n}@example.com`)).toBe(500);
      expect(await sendForm(url, `form-${n}@example.com`)).toBe(200);
      expect(await drain()).toMatchObject({ processed: 1, succeeded: 1 });
      await server.says(`welcome form-${n}@example.com`);
      server.process.kill();
      await server.ended();
    }
  },
);
