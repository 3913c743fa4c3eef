// Reports over HTTP and on the command line: sorting, CSV, refused parameters, and what a token of one tenant sees.

import { describe, expect, it } from 'vitest';

import { cliOn, json } from '../support/cli.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { fillNow } from '../support/reports.js';
import { serveDatabase } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

async function prepare(): Promise<void> {
  const { rows } = await db.query(`SELECT FROM ${db.quoted}.messages LIMIT 1`);
  if (rows.length > 0) return;
  const [one, two] = [await makeQueue(db), await makeQueue(db)];
  await one.enqueue(3, { tenantId: 'acme' });
  await two.enqueue(1, { tenantId: '=cmd()' });
  const claim = await one.claim();
  await settle(
    db,
    claim,
    claim.ids.map((id) => ({ id })),
  );
  await makeDead(two, 1, 'no');
  await fillNow(db);
}

type Body = { rows: Record<string, unknown>[]; total: Record<string, unknown>; hidden: number };

/** A day with 150 topics; its period as parameters and as flags. */
const manyTopics = { from: '2026-02-01T00:00:00Z', to: '2026-02-02T00:00:00Z' };
const flagsOfMany = Object.entries(manyTopics).flatMap(([name, value]) => [`--${name}`, value]);

async function prepareMany(): Promise<void> {
  await prepare();
  await db.query(
    `INSERT INTO ${db.quoted}.report_counts (kind, step, slice, name, count)
     SELECT 'topic', 86400, $1, 'topic-' || n, n FROM generate_series(1, 150) n
     ON CONFLICT DO NOTHING`,
    [manyTopics.from],
  );
}

describe('over HTTP', () => {
  it('W5 a report is sorted by any column, limited, and says how far it is complete', async () => {
    await prepare();
    const ask = await (await serveDatabase(db)).as('read');
    const { status, body } = await ask('GET', '/api/reports/destinations?sort=failed&limit=1');
    expect(status).toBe(200);
    const { rows, total, hidden } = body as Body;
    expect(rows).toMatchObject([{ name: 'queue-2', failed: 1, dead: 1 }]);
    expect(hidden).toBe(1);
    expect(total).toMatchObject({ tries: 4, delivered: 3, dead: 1, deliveryRate: 0.75 });
    expect(new Date(body['completeTo'] as string).getTime()).toBeGreaterThan(Date.now() - 60_000);
    const names = async (query: string) =>
      ((await ask('GET', `/api/reports/topics?${query}`)).body as Body).rows.map(
        ({ name }) => name,
      );
    expect(await names('period=1h')).toEqual(['queue-1', 'queue-2']);
    expect(await names('sort=messages&order=asc')).toEqual(['queue-2', 'queue-1']);
    expect(await names('name=queue-2')).toEqual(['queue-2']);
    expect(await names('from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z')).toEqual([]);
  });

  it('W5 as CSV it is a file without formulas', async () => {
    await prepare();
    const ask = await (await serveDatabase(db)).as('read');
    const { body, headers } = await ask('GET', '/api/reports/tenants?format=csv');
    expect(headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect(headers.get('content-disposition')).toMatch(
      /^attachment; filename="waybill-tenants-\d{8}T\d{6}Z-\d{8}T\d{6}Z\.csv"$/,
    );
    const lines = (body['text'] as string).split('\r\n').map((line) => line.split(',').slice(0, 2));
    expect(lines).toEqual([
      ['name', 'messages'],
      ['acme', '3'],
      ['(none)', '1'],
      ["'=cmd()", '1'],
      ['(total)', '5'],
      [''],
    ]);
  });

  it('W5 as CSV it has all rows, unless a limit is given', async () => {
    await prepareMany();
    const ask = await (await serveDatabase(db)).as('read');
    const linesOf = async (query: string) => {
      const path = `/api/reports/topics?${new URLSearchParams(manyTopics).toString()}${query}`;
      return ((await ask('GET', path)).body['text'] as string).split('\r\n').length;
    };
    // the head, the total and the end of the last line
    expect(await linesOf('&format=csv')).toBe(153);
    expect(await linesOf('&format=csv&limit=7')).toBe(10);
  });

  it.each([
    ['topics?period=2h', /period is "2h": give 1h, 24h, 7d, 30d/],
    ['topics?from=yesterday', /from is "yesterday": give a time such as/],
    ['topics?to=2026-01-01T00:00:00Z', /to is 2026-01-01T00:00:00.000Z without from: give from/],
    ['topics?from=2020-01-01T00:00:00Z', /from is .* more than 31 days before to/],
    ['topics?sort=p95Ms', /sort is "p95Ms": give name, messages, perSecond/],
    ['topics?limit=0', /limit is "0": give a whole number from 1 to 1001/],
    ['topics?format=xml', /format is "xml": give json, csv/],
  ])('W5 %s is refused with the field, the value and the remedy', async (path, message) => {
    const ask = await (await serveDatabase(db)).as('read');
    const { status, body } = await ask('GET', `/api/reports/${path}`);
    expect([status, body['error']]).toEqual([400, expect.stringMatching(message)]);
  });

  it('W5 an unknown destination is not found', async () => {
    const ask = await (await serveDatabase(db)).as('read');
    const { status } = await ask('GET', '/api/reports/destinations?name=nowhere');
    expect(status).toBe(404);
  });

  it('W5 a token of one tenant sees the row of its tenant only', async () => {
    await prepare();
    const ask = await (await serveDatabase(db)).as('read', 'acme');
    const { status, body } = await ask('GET', '/api/reports/tenants');
    expect([status, (body as Body).rows, (body as Body).total['messages']]).toEqual([
      200,
      [{ name: 'acme', messages: 3, perSecond: expect.any(Number) as number }],
      3,
    ]);
    expect(((await ask('GET', '/api/reports/tenants?name=acme')).body as Body).rows).toHaveLength(
      1,
    );
    expect(await ask('GET', '/api/reports/tenants?name=globex')).toMatchObject({
      status: 403,
      body: {
        error: expect.stringMatching(/ may see the tenant acme only: leave name out$/) as unknown,
      },
    });
    for (const by of ['topics', 'destinations'])
      expect((await ask('GET', `/api/reports/${by}`)).status, by).toBe(403);
  });
});

describe('waybill report', () => {
  it('W5 prints a table, JSON or CSV', async () => {
    await prepare();
    const table = await cliOn(db, ['report', 'destinations', '--sort', 'p95Ms']);
    expect(table.code).toBe(0);
    expect(table.stdout).toMatch(
      /^name +tries +perSecond +delivered +failed +dead .*\nqueue-1 +3 /,
    );
    expect(table.stdout).toMatch(/\n\(total\) +4 /);
    expect(table.stderr).toMatch(/Complete up to \d{4}-/);
    expect(json(await cliOn(db, ['report', 'tenants', '--last', '1h', '--json']))).toMatchObject({
      by: 'tenants',
      rows: [{ name: 'acme', messages: 3 }, {}, {}],
      total: { messages: 5 },
    });
    const { stdout } = await cliOn(db, ['report', '--csv']);
    expect(stdout).toMatch(/^name,messages,perSecond\r\nqueue-1,3,/);
  });

  it('W5 prints all rows as CSV, and says which a limit leaves out', async () => {
    await prepareMany();
    const all = await cliOn(db, ['report', 'topics', ...flagsOfMany, '--csv']);
    expect([all.stdout.split('\r\n').length, all.stderr]).toEqual([153, '']);
    const some = await cliOn(db, ['report', 'topics', ...flagsOfMany, '--csv', '--limit', '7']);
    expect(some.stdout.split('\r\n')).toHaveLength(10);
    expect(some.stderr).toContain('(143 more: --limit 150)');
  });

  it('W5 refuses a period that is too long', async () => {
    const { code, stderr } = await cliOn(db, ['report', '--from', '2020-01-01T00:00:00Z']);
    expect(code).toBe(2);
    expect(stderr).toContain('give at most 31 days');
  });
});
