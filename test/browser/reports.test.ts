// Reports, the event catalogue and the flow diagram in a browser.

import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

import { rowsOf, testBrowser } from '../support/browser.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { fillNow } from '../support/reports.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

async function show(place: string, expected?: RegExp) {
  const { rows } = await db.query(`SELECT FROM ${db.quoted}.messages LIMIT 1`);
  if (rows.length === 0) {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    await one.enqueue(3, { tenantId: 'acme' });
    await makeDead(two, 1, 'no');
    await db.query(`SELECT ${db.quoted}.set_paused('queue-2', true, 'ann')`);
    await fillNow(db);
  }
  const { url } = await serveDatabase(db, { authentication: 'none' });
  return browser.open(`${url}/#/${place}`, { ...(expected && { expected }) });
}

it('W5 a report is chosen, sorted by a click on a head, and downloaded as CSV', async () => {
  const page = await show('reports');
  const rows = rowsOf(page, 'Report');
  await expect.poll(() => rows.allTextContents()).toHaveLength(2);
  expect(await rows.first().textContent()).toContain('queue-1');
  await page.getByText('4 messages in all').waitFor();
  await page.getByRole('columnheader', { name: 'Messages' }).getByRole('link').click();
  await expect.poll(() => rows.first().textContent()).toContain('queue-2');
  expect(await page.getByRole('columnheader', { name: 'Messages' }).getAttribute('aria-sort')).toBe(
    'ascending',
  );
  await page.getByRole('navigation', { name: 'Report' }).getByText('Tenants').click();
  await expect.poll(() => rows.first().textContent()).toContain('acme');
  await page.getByRole('navigation', { name: 'Period' }).getByText('7 d').click();
  await expect.poll(() => page.url()).toContain('period=7d');
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'CSV' }).click(),
  ]);
  expect(file.suggestedFilename()).toMatch(/^waybill-tenants-\d{8}T\d{6}Z-\d{8}T\d{6}Z\.csv$/);
  expect(readFileSync(await file.path(), 'utf8')).toMatch(/^name,messages,perSecond\r\nacme,3,/);
});

it('W5 a destination of a report leads to its screen', async () => {
  const page = await show('reports/destinations');
  await rowsOf(page, 'Report').getByRole('link', { name: 'queue-2' }).click();
  await page.getByRole('heading', { name: 'queue-2' }).waitFor();
  expect(page.url()).toContain('#/destinations/queue-2');
});

it('W5 a report of destinations says how many of the failed tries were for good', async () => {
  const page = await show('reports/destinations');
  await page.getByText('1 try in all: 0 delivered, 1 failed, 1 of them for good.').waitFor();
});

it('W5 a report of a period that is not counted yet says so', async () => {
  const inHours = (hours: number) => new Date(Date.now() + hours * 3_600_000).toISOString();
  const page = await show(`reports/topics?from=${inHours(1)}&to=${inHours(2)}`);
  await page.getByText(/^This period is not counted yet: everything before .+ is\.$/).waitFor();
});

it('W5 a refused period shows its error', async () => {
  const page = await show('reports/topics?from=2020-01-01T00:00:00Z', /400/);
  await page.getByText('give at most 31 days').waitFor();
});

it('W5 the catalogue leads to the screen of an event', async () => {
  const page = await show('events');
  await rowsOf(page, 'Events').getByRole('link', { name: 'queue-1' }).click();
  await page.getByRole('heading', { name: 'queue-1' }).waitFor();
  await expect.poll(() => rowsOf(page, 'Receivers').allTextContents()).toHaveLength(1);
  await page.getByText('It has no schema').waitFor();
  const receiver = rowsOf(page, 'Receivers').first();
  expect(
    await receiver.getByRole('link', { name: 'queue-1', exact: true }).getAttribute('href'),
  ).toBe('#/destinations/queue-1');
  expect(
    await receiver.getByRole('link', { name: 'Show the messages at queue-1' }).getAttribute('href'),
  ).toBe('#/messages?destination=queue-1&topic=queue-1');
  await page.getByRole('link', { name: 'All events' }).click();
  await page.getByRole('heading', { name: 'Events' }).waitFor();
});

it('W5 the flow diagram highlights the lines of a topic that has the keyboard, and marks problems', async () => {
  const page = await show('flow');
  const lines = page.locator('.flow-line');
  await expect.poll(() => lines.count()).toBe(2);
  expect(await page.locator('.flow-line.warn').count()).toBe(1);
  expect(await page.locator('.screen-head').textContent()).toMatch(
    /rates of topics: .+; of destinations: the last minute$/,
  );
  const node = page.locator('svg.flow a').first();
  await node.focus();
  await expect.poll(() => page.locator('.flow-line.chosen').count()).toBe(1);
  expect(await page.locator('.flow-line.other').count()).toBe(1);
  expect(await node.getAttribute('aria-label')).toMatch(/^queue-1 [\d.]+\/s$/);
  const table = rowsOf(page, 'Topics and their destinations');
  expect((await table.allTextContents()).join()).toContain('paused');
  for (const names of [page.locator('svg.flow'), table]) {
    const name = names.getByRole('link', { name: /^queue-2/ }).last();
    expect(await name.getAttribute('href')).toBe('#/destinations/queue-2');
  }
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'queue-1' }).waitFor();
});
