// Runs the route handlers of examples/nextjs as Next.js does: modules whose exported functions get a request. In a
// separate process, with the built package.

import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { beforeAll, expect, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { runNode } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const secret = 'long-enough-to-be-a-secret';

// the examples use the default schema, whatever the schema of this project is
beforeAll(async () => {
  await migrateUp({ url: db.url });
  await db.query('CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE)');
});

/** Runs code with the handlers in scope; returns its output. */
async function withHandlers(code: string, environment: Record<string, string> = {}) {
  const load = (file: string) =>
    `await import(${JSON.stringify(pathToFileURL(path.resolve('examples/nextjs', file)).href)})`;
  const script = `
    const users = ${load('app/api/users/route.js')};
    const drain = ${load('app/api/drain/route.js')};
    const { pool } = ${load('lib/database.js')};
    const ask = async (handler, method, { token, body } = {}) => {
      const headers = token === undefined ? {} : { authorization: 'Bearer ' + token };
      const request = new Request('http://localhost/', { method, headers, ...(body && { body: JSON.stringify(body) }) });
      const response = await handler(request);
      console.log(response.status, JSON.stringify(await response.json()));
    };
    const token = process.env.CRON_SECRET;
    ${code}
    await pool.end();`;
  const run = runNode(['--input-type=module', '-e', script], {
    environment: { DATABASE_URL: db.url, ...environment },
  });
  const { code: status, stdout, stderr } = await run.ended();
  if (status !== 0) throw new Error(`it ended with ${status}:\n${stdout}\n${stderr}`);
  return stdout;
}

test('M1 C7 one route handler enqueues, another delivers when it is called with GET or POST', async () => {
  const output = await withHandlers(
    `
    await ask(drain.POST, 'POST', { token });
    await ask(users.POST, 'POST', { body: { email: 'ada@example.com' } });
    await ask(drain.GET, 'GET', { token });
    await ask(users.POST, 'POST', { body: { email: 'bob@example.com' } });
    await ask(drain.POST, 'POST', { token });
    await ask(drain.GET, 'GET', { token: 'wrong' });`,
    { CRON_SECRET: secret },
  );
  const lines = output.trim().split('\n');
  expect(lines).toHaveLength(8);
  expect(lines[0]).toContain('200 {"processed":0');
  expect(lines[1]).toContain('201 {"userId":1,"messageId":"');
  expect(lines[2]).toContain('welcome ada@example.com');
  expect(lines[3]).toContain('200 {"processed":1,"succeeded":1');
  expect(lines[5]).toContain('welcome bob@example.com');
  expect(lines[6]).toContain('200 {"processed":1,"succeeded":1');
  expect(lines[7]).toContain('401 ');
});

test('M1 a user that the database refuses leaves no message', async () => {
  const output = await withHandlers(`
    const body = { email: 'eve@example.com' };
    await ask(users.POST, 'POST', { body });
    await ask(users.POST, 'POST', { body }).catch((error) => console.log(error.message));`);
  expect(output).toContain('users_email_key');
  const { rows } = await db.query(
    `SELECT FROM outbox.messages WHERE payload ->> 'email' = 'eve@example.com'`,
  );
  expect(rows).toHaveLength(1);
});

test('the modules load without secrets, as in a build', async () => {
  await withHandlers('');
});
