// A relay that claims a message longer than the longest string of Node delivers the others. The query fails with the
// driver's error, and the process continues: see also driver-long-values.test.ts.

import { constants } from 'node:buffer';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

import { expect, onTestFinished, test } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, places, send, startRelay } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

/** The size of 1e131071 as text, with its comma. */
const numberBytes = 131_074;

/** Only the owner of the schema can write this: the stored size says that the message can be read. */
async function makeTooLong(id: string | undefined): Promise<void> {
  const count = Math.ceil(constants.MAX_STRING_LENGTH / numberBytes) + 1;
  await db.query(
    `UPDATE ${db.quoted}.messages m SET payload = p.payload
       FROM (SELECT jsonb_agg('1e131071'::jsonb) AS payload FROM generate_series(1, ${count})) p WHERE m.id = $1`,
    [id],
  );
}

test('M13 a relay that cannot read a claim delivers the other messages, and the unreadable one dies', async () => {
  // the route must exist before the first message is sent
  await (await startRelay(db, { destinations: { long: handler(() => {}) } })).stop();
  const [first, long, last] = await send(db, numbered('long', 3));
  await makeTooLong(long);
  const child = spawn(process.execPath, ['test/support/deliver-too-long.mjs'], {
    env: { ...process.env, DATABASE_URL: db.url, SCHEMA: db.schema },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  onTestFinished(() => void child.kill('SIGKILL'));
  const said: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => said.push(line));
  /** Claims of the long message are never read, so their leases need not last. */
  const isDead = async (): Promise<boolean> => {
    await db.query(
      `UPDATE ${db.quoted}.leases SET expires_at = '-infinity'
        WHERE expires_at <> '-infinity' AND $1 = ANY (message_ids)`,
      [long],
    );
    return (await places(db, 'long')).dead === 1;
  };
  await waitFor(isDead, { what: 'the dead letter', timeoutMs: 300_000 });
  await waitFor(() => said.includes(first ?? '') && said.includes(last ?? ''), {
    what: 'the other messages',
    timeoutMs: 60_000,
  });
  child.kill('SIGTERM');
  await ended;
  expect(await places(db, 'long')).toEqual({ waiting: 0, leased: 0, dead: 1, delivered: 2 });
  // a released lease would be claimed again as a whole, without end
  const claims = said.filter((line) => !line.startsWith('look for work'));
  expect(new Set(claims)).toEqual(new Set([first, last, 'claim for long: ERR_STRING_TOO_LONG']));
}, 600_000);
