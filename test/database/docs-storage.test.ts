// The figures of storage in docs/operate/scale.md: they are what a message takes, and their sums are right. The bytes
// are measured with the load of the bench `storage`.

import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { fill, prepare } from '../../bench/storage/load.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const page = readFileSync('docs/operate/scale.md', 'utf8');
const rates = { '1,000 a day': 1000, '10,000 a day': 10_000, '1,000 a minute': 1_440_000 };

/** The cells of the table row that begins with this text: one for each rate. */
function cellsOf(beginning: string): string[] {
  const line = page.split('\n').find((one) => one.startsWith(`| ${beginning}`)) ?? '';
  return line.split('|').slice(2, 5);
}

const bytesOf = (what: string): number[] =>
  cellsOf(what).map((cell) => Number(cell.replaceAll(',', '')));

test('N16 the storage is stated at 1,000 and 10,000 events a day and at 1,000 a minute', () => {
  expect(page).toContain(`| kept | ${Object.keys(rates).join(' | ')} |`);
  const units: Record<string, number> = { MB: 1e6, GB: 1e9 };
  const least = bytesOf('plain message, bytes');
  const most = bytesOf('watched row, bytes');
  Object.values(rates).forEach((perDay, index) => {
    const [, from, to, unit = ''] =
      /([\d.]+) to ([\d.]+) ([MG]B)/.exec(cellsOf('all year')[index] ?? '') ?? [];
    for (const [stated, bytes] of [
      [from, least[index]],
      [to, most[index]],
    ] as const) {
      const year = (bytes ?? Number.NaN) * perDay * 365;
      expect((Number(stated) * (units[unit] ?? 0)) / year).toBeCloseTo(1, 1);
    }
  });
});

test('N15 N16 a change of a watched row takes the bytes that are stated for 10,000 a day', async () => {
  const client = await db.connect();
  await prepare({ url: db.url, client, drop: async () => {} }, 'watched row');
  const parts = await fill(client, { name: '10,000 a day', perDay: 10_000 }, 10_000);
  const bytes = Object.values(parts).reduce((sum, part) => sum + part, 0);
  const [, stated = 0] = bytesOf('watched row, bytes');
  expect(Math.abs(bytes / stated - 1), `${bytes} bytes instead of ${stated}`).toBeLessThan(0.05);
});
