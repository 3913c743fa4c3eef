// The overview with many destinations, and its numbers.

import { expect, it } from 'vitest';

import { polling, testBrowser } from '../support/browser.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

it('W5 the overview lists twenty destinations, problems first, and links to the others', async () => {
  await db.query(
    `SELECT count(${db.quoted}.define_destination('calm-' || lpad(n::text, 2, '0'), 'test')) FROM generate_series(1, 30) n`,
  );
  const dead = await makeQueue(db);
  await makeDead(dead, 1, 'gone');
  const paused = await makeQueue(db);
  await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [paused.name]);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(url);
  const items = page.locator('.list-panel.destinations li');
  await expect.poll(() => items.count(), polling).toBe(20);
  const names = await items.locator('a').allTextContents();
  expect(names.slice(0, 3)).toEqual([dead.name, paused.name, 'calm-01']);
  await expect.poll(() => items.first().textContent()).toContain('1 dead letter');
  expect(await items.first().locator('.dot').getAttribute('class')).toBe('dot warn');
  await page.getByRole('link', { name: 'More destinations' }).click();
  await page.getByRole('heading', { name: 'Destinations' }).waitFor();
});

it('W5 numbers of alerts have separators, and the axis of a chart of counts has whole numbers', async () => {
  await db.query(
    `INSERT INTO ${db.quoted}.samples (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
     SELECT date_bin('10 seconds', now(), 'epoch') - n * interval '10 seconds', 1, 1, 0, 1, 1, 1, 1, 1 FROM generate_series(1, 60) n`,
  );
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open('about:blank');
  await page.route('**/api/alerts', (route) =>
    route.fulfill({
      json: {
        alerts: [
          {
            alert: 'waiting',
            firing: true,
            sentence: '1000000 deliveries wait (alert above 10000)',
            remedy: 'start relays',
            destination: null,
          },
        ],
      },
    }),
  );
  await page.goto(url);
  await page.getByText('1\u202f000\u202f000 deliveries wait (alert above 10\u202f000).').waitFor();
  const chart = page.locator('.chart', {
    has: page.getByRole('heading', { name: 'Dead letters' }),
  });
  await expect
    .poll(() => chart.locator('.top-label, .middle-label').allTextContents(), polling)
    .toEqual(['2', '1']);
});

it('W5 tiles are as high as many alerts beside them, without holes between their rows', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open('about:blank');
  const alerts = [1, 2, 3, 4].map((n) => ({
    alert: 'waiting',
    firing: true,
    sentence: `${n} deliveries wait, and this is told in so many words that they need some lines (alert above 0)`,
    remedy: 'start relays',
    destination: null,
  }));
  await page.route('**/api/alerts', (route) => route.fulfill({ json: { alerts } }));
  await page.goto(url);
  const box = async (place: string) => {
    const { x = 0, y = 0, height = 0 } = (await page.locator(place).boundingBox()) ?? {};
    return { x, y, end: y + height };
  };
  await page.getByText('4 deliveries wait').waitFor();
  const [alertsBox, first, below, last] = [
    await box('.alerts'),
    await box('[data-tile=In]'),
    await box('[data-tile=Average]'),
    await box('[data-tile="Success rate"]'),
  ];
  expect(alertsBox.end - alertsBox.y).toBeGreaterThan(300);
  expect(below.y - first.end).toBeCloseTo(10, 0);
  expect(last.end).toBeCloseTo(alertsBox.end, 0);
});
