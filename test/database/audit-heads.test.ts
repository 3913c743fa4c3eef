// Heads of the seal chain are exported at least once, in order, also after a crash and while a target cannot be
// reached. The command line verifies against the exported heads.

import { readFileSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';

import { describe, expect, it, onTestFinished } from 'vitest';

import { readHeads } from '../../src/features/audit/database.js';
import { handler } from '../../src/destinations/handler.js';
import { resolveAuditOptions } from '../../src/features/audit/options.js';
import type { HeadOptions } from '../../src/features/audit/options.js';
import { parseHeads } from '../../src/features/audit/chain.js';
import { headSinks } from '../../src/features/audit/head-sinks.js';
import { maintainSeals } from '../../src/features/audit/sealing.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { deliver, sealNow, tamper } from '../support/audit.js';
import { cliOn, json, temporaryDirectory, writeConfig } from '../support/cli.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { openDatabase, send, startRelay } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const allHeads = () => readHeads(openDatabase(db, 'test_control'), 0, 100_000);

/** Seals and exports with a relay's rights, as a relay does in its interval task. */
async function tick(heads: HeadOptions): Promise<RelayEvent[]> {
  const events: RelayEvent[] = [];
  const audit = resolveAuditOptions({ seal: true, delayMs: 0, heads });
  const emit = (event: RelayEvent) => void events.push(event);
  await maintainSeals(openDatabase(db, 'test_relay'), audit, headSinks(audit, emit), emit);
  return events;
}

async function headAlarm(): Promise<string | null> {
  const { rows } = await db.query<{ alarm: string | null }>(
    `SELECT alarm FROM ${db.quoted}.health WHERE metric = 'unexported_heads'`,
  );
  return only(rows).alarm;
}

async function someSeals(): Promise<void> {
  await deliver(await makeQueue(db), 6);
  await sealNow(db, 2);
}

describe('a file', () => {
  it('W8 has every head once, and later ones are appended', async () => {
    const file = path.join(temporaryDirectory(), 'heads.jsonl');
    await someSeals();
    await tick({ file, log: false });
    expect(parseHeads(readFileSync(file, 'utf8'))).toEqual(await allHeads());
    await someSeals();
    await tick({ file, log: false });
    await tick({ file, log: false });
    expect(parseHeads(readFileSync(file, 'utf8'))).toEqual(await allHeads());
  });

  it('W8 gets the heads that were sealed before a crash, and again those that the crash cut off', async () => {
    const file = path.join(temporaryDirectory(), 'heads.jsonl');
    await someSeals();
    await tick({ file, log: false });
    // sealed, and then the relay was gone: half a line was written, and not recorded
    await someSeals();
    writeFileSync(file, '{"number": 4711, "head": "0123', { flag: 'a' });
    await tick({ file, log: false });
    const heads = await allHeads();
    expect(parseHeads(readFileSync(file, 'utf8'))).toEqual(heads);
    // written, and then the relay was gone before it could record it: the heads are written again
    await db.query(`UPDATE ${db.quoted}.seal_exports SET number = number - 2 WHERE sink LIKE $1`, [
      `%${file}`,
    ]);
    await tick({ file, log: false });
    const again = parseHeads(readFileSync(file, 'utf8'));
    expect(again).toEqual([...heads, ...heads.slice(-2)]);
    expect(await cliOn(db, ['audit', 'verify', '--heads', file])).toMatchObject({ code: 0 });
  });

  it('W8 that cannot be written raises an alarm until it can', async () => {
    const directory = temporaryDirectory();
    const file = path.join(directory, 'missing', 'heads.jsonl');
    await someSeals();
    expect(await tick({ file, log: false })).toMatchObject([
      { name: 'trouble', what: expect.stringContaining(file) as string },
    ]);
    expect(await headAlarm()).toContain(`${file} (since`);
    expect(await headAlarm()).toContain('ENOENT');
    await db.query(
      `UPDATE ${db.quoted}.seal_exports SET tried_at = tried_at - interval '1 hour' WHERE sink LIKE $1`,
      [`%${file}`],
    );
    expect(await headAlarm(), 'no relay tries it any more').toBe(null);
  });

  it('W8 that has more heads than the chain raises an alarm', async () => {
    const file = path.join(temporaryDirectory(), 'heads.jsonl');
    await someSeals();
    await tick({ file, log: false });
    const { length } = await allHeads();
    await db.query(
      `CREATE TABLE public.kept AS SELECT * FROM ${db.quoted}.seals WHERE number = ${length}`,
    );
    await tamper(db, `DELETE FROM ${db.quoted}.seals WHERE number = ${length}`);
    await tick({ file, log: false });
    expect(await headAlarm()).toContain(
      `the chain ends at ${length - 1}: run waybill audit verify`,
    );
    await tamper(db, `INSERT INTO ${db.quoted}.seals TABLE public.kept`);
    await db.query(`UPDATE ${db.quoted}.seal_exports SET error = NULL, failed_at = NULL`);
  });
});

describe('a webhook', () => {
  it('W8 gets the heads, again until it accepts them, with an alarm meanwhile', async () => {
    const received: { authorization: string | undefined; body: { heads: unknown[] } }[] = [];
    let status = 503;
    const server = createServer((request, response) => {
      let text = '';
      request.setEncoding('utf8').on('data', (part: string) => (text += part));
      request.on('end', () => {
        const { authorization } = request.headers;
        received.push({ authorization, body: JSON.parse(text) as { heads: unknown[] } });
        response.writeHead(status).end();
      });
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const webhook = `http://127.0.0.1:${port}/heads?secret=1`;
    const heads = { webhook, headers: { authorization: 'Bearer t' }, log: false };
    await someSeals();
    await tick(heads);
    expect(await headAlarm()).toMatch(`webhook http://127.0.0.1:${port} (`);
    expect(await headAlarm()).toContain('it answered 503');
    expect(await headAlarm()).not.toMatch(/secret|heads\?|\/heads/);
    status = 204;
    await tick(heads);
    expect(await headAlarm()).toBe(null);
    expect(received.map(({ body }) => body.heads)).toEqual([await allHeads(), await allHeads()]);
    expect(received[1]?.authorization).toBe('Bearer t');
    await tick(heads);
    expect(received, 'nothing new').toHaveLength(2);
  });
});

describe('a relay', { timeout: 120_000 }, () => {
  it('W8 seals what it delivered and writes the heads into its log; the log is enough to verify', async () => {
    const settings = {
      destinations: { sealed: handler(() => {}) },
      audit: { seal: true, delayMs: 0, everyMs: 1000 },
    };
    const relays = await Promise.all([startRelay(db, settings), startRelay(db, settings)]);
    await send(db, [{ topic: 'sealed' }, { topic: 'sealed' }]);
    await waitFor(
      async () => {
        const { rows } = await db.query<{ open: boolean }>(
          `SELECT EXISTS (SELECT FROM ${db.quoted}.attempts a JOIN ${db.quoted}.destinations d ON d.id = a.destination_id AND d.name = 'sealed') AND NOT EXISTS (
             SELECT FROM ${db.quoted}.attempts a WHERE NOT EXISTS (SELECT FROM ${db.quoted}.seals s
               WHERE s.kind = 'attempts' AND a.message_id >= s.from_id AND a.message_id < s.to_id)) AS open`,
        );
        return only(rows).open;
      },
      { what: 'every attempt to be sealed', timeoutMs: 40_000 },
    );
    await Promise.all(relays.map((relay) => relay.stop()));
    const log = relays
      .flatMap((relay) => relay.of('audit_sealed'))
      .map(({ name, ...head }) => JSON.stringify({ level: 30, time: 1, ...head, msg: name }))
      .join('\n');
    expect(parseHeads(log).length).toBeGreaterThan(0);
    const file = path.join(temporaryDirectory(), 'relay.log');
    writeFileSync(file, log);
    const verified = await cliOn(db, ['audit', 'verify', '--heads', file]);
    expect(verified).toMatchObject({ code: 0 });
    expect(verified.stdout).toMatch(/intact\n$/);
  });
});

describe('the command line', { timeout: 120_000 }, () => {
  it('W8 verify reports what was changed, with its own exit code', async () => {
    await someSeals();
    const heads = await cliOn(db, ['audit', 'heads']);
    const file = path.join(temporaryDirectory(), 'heads.jsonl');
    writeFileSync(file, heads.stdout);
    const intact = await cliOn(db, ['audit', 'verify', '--heads', file]);
    expect(intact).toMatchObject({ code: 0 });
    expect(intact.stdout).toMatch(/matches the exported heads up to seal \d+\nintact\n$/);
    const alone = await cliOn(db, ['audit', 'verify']);
    expect(alone).toMatchObject({ code: 0 });
    expect(alone.stderr).toContain('--heads FILE');

    const { rows } = await db.query<{ id: string }>(
      `SELECT message_id AS id FROM ${db.quoted}.attempts ORDER BY message_id DESC LIMIT 1`,
    );
    const { id } = only(rows);
    await tamper(
      db,
      `UPDATE ${db.quoted}.attempts SET tries = tries + 1 WHERE message_id = '${id}'`,
    );
    const edited = await cliOn(db, ['audit', 'verify', '--heads', file]);
    expect(edited).toMatchObject({ code: 7 });
    expect(edited.stdout).toMatch(/EDITED: seal \d+: 1 of its rows are not as they were/);
    expect(edited.stdout).toContain(`message ${id} destination`);
    expect(edited.stdout).toContain('NOT INTACT: 1 findings');
    const report = json(await cliOn(db, ['audit', 'verify', '--json'])) as { intact: boolean };
    expect(report).toMatchObject({ intact: false, provenTo: null, findings: [{ kind: 'edited' }] });
    await tamper(
      db,
      `UPDATE ${db.quoted}.attempts SET tries = tries - 1 WHERE message_id = '${id}'`,
    );
  });

  it('W8 verify refuses a file without heads, and says when nothing was ever sealed', async () => {
    const file = path.join(temporaryDirectory(), 'empty.jsonl');
    writeFileSync(file, 'nothing\n');
    const empty = await cliOn(db, ['audit', 'verify', '--heads', file]);
    expect(empty).toMatchObject({ code: 2 });
    expect(empty.stderr).toContain('has no line with a head');
    expect(await cliOn(db, ['audit', 'verify', '--heads', '/nowhere'])).toMatchObject({ code: 2 });
    const fresh = await otherDatabase('migrated');
    const never = await cliOn({ ...db, url: fresh.url, schema: db.schema }, ['audit', 'verify']);
    expect(never).toMatchObject({ code: 3 });
    expect(never.stderr).toContain('nothing was ever sealed');
  });

  it('W8 maintain seals and exports where no relay runs', async () => {
    const directory = temporaryDirectory();
    const file = path.join(directory, 'heads.jsonl');
    const config = writeConfig(
      `{ destinations: {}, routes: [], audit: { seal: true, delayMs: 0, everyMs: 1000, heads: { file: ${JSON.stringify(file)} } } }`,
    );
    await makeQueue(db);
    const { code, stdout, stderr } = await cliOn(db, ['maintain', '--config', config]);
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/^audit: \d+ rows sealed$/m);
    expect(stderr).toContain('audit_sealed');
    expect(parseHeads(readFileSync(file, 'utf8'))).toEqual(await allHeads());
  });
});
