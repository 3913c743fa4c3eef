// Search for messages in a browser: the search box, searches that take many requests, and saved filters.

import type { Locator, Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { expectRows, polling, rowsOf, testBrowser } from '../support/browser.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { accessibilityProblems } from './accessibility.js';

const db = testDatabase();
const browser = testBrowser();

async function serve(searchablePayloadFields?: string[]): Promise<string> {
  const config = searchablePayloadFields && { server: { searchablePayloadFields } };
  const { url } = await serveDatabase(db, { authentication: 'none', ...(config && { config }) });
  return `${url}/`;
}

const box = (page: Page) => page.getByRole('combobox', { name: 'Search' });
const options = (page: Page) => page.getByRole('listbox').getByRole('option');

/** Enqueues many messages of a topic in one statement. */
async function enqueueMuch(topic: string, count: number): Promise<void> {
  await db.query(
    `SELECT count(*) FROM ${db.quoted}.enqueue_many(
       (SELECT jsonb_agg(jsonb_build_object('topic', $1::text, 'payload', n)) FROM generate_series(1, $2::int) n))`,
    [topic, count],
  );
}

/** Answers each request of the search with an empty page, until the test lets the next one through. */
async function searchStepByStep(page: Page, pages: object[]): Promise<() => Promise<void>> {
  const waiting: (() => void)[] = [];
  await page.route('**/api/messages?*', async (route) => {
    await new Promise<void>((resolve) => waiting.push(resolve));
    await route.fulfill({ json: pages.shift() ?? { messages: [], next: null, searched: 0 } });
  });
  return async () => {
    await expect.poll(() => waiting.length, polling).toBe(1);
    waiting.shift()?.();
  };
}

const empty = (searchedInAll: number, next: string | null) => ({
  messages: [],
  next,
  searched: 1,
  searchedInAll,
});

it('W5 a long search goes on by itself, says how far it is, and says nothing before its end', async () => {
  const address = await serve();
  const page = await browser.open('about:blank');
  const answer = await searchStepByStep(page, [
    empty(20_000, 'a'),
    empty(40_000, 'b'),
    empty(41_000, null),
  ]);
  await page.goto(`${address}#/messages?namespace=none`);
  await answer();
  await page.getByText('Searching: searched 20\u202f000, found 0').waitFor();
  expect(await page.getByText('No message matches.').count()).toBe(0);
  expect(await page.getByRole('status').textContent()).toBe('searching');
  await answer();
  await page.getByText('Searching: searched 40\u202f000, found 0').waitFor();
  expect(await page.getByText('No message matches.').count()).toBe(0);
  await answer();
  await page.getByText('No message matches.').waitFor();
  await page.getByText('0 shown, searched 41\u202f000, found 0').waitFor();
  expect(await page.getByRole('status').textContent()).toBe('searched');
});

it('W5 Stop ends a search, and Search on continues it from there', async () => {
  const address = await serve();
  const page = await browser.open('about:blank');
  const asked: (string | null)[] = [];
  page.on('request', (request) => {
    if (request.url().includes('/api/messages?'))
      asked.push(new URL(request.url()).searchParams.get('next'));
  });
  const answer = await searchStepByStep(page, [
    empty(20_000, 'a'),
    empty(40_000, 'b'),
    // the stopped one gets none
    empty(0, null),
    empty(50_000, null),
  ]);
  await page.goto(`${address}#/messages?namespace=none`);
  await answer();
  await answer();
  await page.getByText('Searching: searched 40\u202f000').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped: searched 40\u202f000, found 0; there is more to search').waitFor();
  await page.getByText('Nothing found so far').waitFor();
  expect(await page.getByText('No message matches.').count()).toBe(0);
  await answer();
  await page.getByRole('button', { name: 'Search on' }).click();
  await answer();
  await page.getByText('No message matches.').waitFor();
  expect(asked).toEqual([null, 'a', 'b', 'b']);
});

it('W5 an error ends a search without losing its place', async () => {
  const address = await serve();
  const page = await browser.open('about:blank', { expected: /503/ });
  const asked: (string | null)[] = [];
  await page.route('**/api/messages?*', (route) => {
    asked.push(new URL(route.request().url()).searchParams.get('next'));
    if (asked.length === 2)
      return route.fulfill({ status: 503, json: { error: 'the database does not answer' } });
    return route.fulfill({ json: asked.length === 1 ? empty(20_000, 'a') : empty(21_000, null) });
  });
  await page.goto(`${address}#/messages?namespace=none`);
  await page.getByRole('alert').getByText('The database does not answer.').waitFor();
  expect(await page.getByText('No message matches.').count()).toBe(0);
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByText('No message matches.').waitFor();
  await page.getByText('searched 21\u202f000, found 0').waitFor();
  expect(await page.getByRole('alert').count()).toBe(0);
  expect(asked).toEqual([null, 'a', 'a']);
});

it('W5 a search ends when its page is full, and the next page goes on', async () => {
  const queue = await makeQueue(db);
  // the first request finds the newest ones, the last one the oldest
  const rare = await queue.enqueue(60, { aggregateType: 'rare', aggregateId: '1' });
  await enqueueMuch(queue.topic, 21_000);
  await queue.enqueue(20, { aggregateType: 'rare', aggregateId: '1' });
  const page = await browser.open(
    `${await serve()}#/messages?topic=${queue.topic}&aggregateType=rare`,
  );
  await expectRows(page, 'Messages', 50);
  await page.getByText(/^50 shown, searched 21\u202f\d+, found 50/).waitFor();
  await page.getByRole('link', { name: 'Next page' }).click();
  await expectRows(page, 'Messages', 30);
  const shown = await rowsOf(page, 'Messages')
    .locator('a')
    .evaluateAll((links) => links.map((link) => link.getAttribute('href')?.split('/')[2] ?? ''));
  expect(shown).toEqual(rare.slice(0, 30).toReversed());
});

it('W5 M13 the list of dead letters searches on by itself, and says nothing before its end', async () => {
  const queue = await makeQueue(db);
  const oldest = await makeDead(queue, 1, 'no', { tenantId: 'initech' });
  // newer letters, of which none has both the topic and the tenant
  await db.query(
    `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, created_at,
                                            namespace, topic, tenant_id)
     SELECT ${db.quoted}.new_id(), $1, clock_timestamp(), 1, 1, 'rejected', now(), 'default',
            CASE WHEN n % 2 = 0 THEN $2 ELSE 'another' END, CASE WHEN n % 2 = 0 THEN 'globex' ELSE 'initech' END
       FROM generate_series(1, 44000) n`,
    [queue.id, queue.topic],
  );
  await db.query(`ANALYZE ${db.quoted}.dead_letters`);
  const address = await serve();
  const page = await browser.open('about:blank');
  let goOn = (): void => undefined;
  const waiting = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  await page.route(/api\/messages\?.*next=/, async (route) => {
    await waiting;
    await route.continue();
  });
  await page.goto(`${address}#/dead-letters?topic=${queue.topic}&tenantId=initech`);
  await page.getByText(/^Searching: searched [\d\u202f]+, found 0/).waitFor();
  await page.getByRole('button', { name: 'Stop' }).waitFor();
  expect(await page.getByText('No dead letter matches.').count()).toBe(0);
  goOn();
  await expectRows(page, 'Dead letters', 1);
  const row = rowsOf(page, 'Dead letters').first();
  await row.locator(`a[href$="${oldest[0] ?? ''}"]`).waitFor();
  await page.getByRole('button', { name: 'Search again' }).waitFor();
});

it('W5 a new filter ends the search of the previous one', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(2);
  const address = await serve();
  const page = await browser.open('about:blank');
  await page.route(/namespace=none/, (route) => route.fulfill({ json: empty(1, 'a') }));
  await page.goto(`${address}#/messages?namespace=none`);
  await page.getByText('Searching: searched 1').waitFor();
  await page.goto(`${address}#/messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 2);
  await page.getByRole('status').getByText('live').waitFor();
  let asked = 0;
  page.on('request', (request) => {
    if (request.url().includes('namespace=none')) asked += 1;
  });
  await page.getByText('2 shown').waitFor();
  expect(asked).toBe(0);
});

it('W5 the search box sets filters from words, and keeps those that are set', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 2, 'odd', { tenantId: 'acme', aggregateType: 'order', aggregateId: '77' });
  await queue.enqueue(1);
  const page = await browser.open(`${await serve()}#/messages?destination=${queue.name}`);
  await expectRows(page, 'Messages', 3);
  await box(page).fill('status:dead aggregate:order/77');
  await box(page).press('Enter');
  await expectRows(page, 'Messages', 2);
  expect(page.url()).toContain(
    `destination=${queue.name}&status=dead&aggregateType=order&aggregateId=77`,
  );
  expect(await box(page).inputValue()).toBe('');
  expect(await page.getByLabel('Aggregate id').inputValue()).toBe('77');
  await box(page).fill('code:other');
  await box(page).press('Enter');
  await expectRows(page, 'Messages', 0);
});

it('W5 the search box offers topics, destinations and meanings, by keyboard and pointer', async () => {
  const queue = await makeQueue(db);
  await db.query(`INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES ($1, 'shop.*')`, [
    queue.id,
  ]);
  for (const topic of ['shop.order.paid', 'shop.order.sent', 'shop.user.new'])
    await queue.enqueue(1, { topic, key: 'shop' });
  const page = await browser.open(`${await serve()}#/messages?destination=${queue.name}`);
  await expectRows(page, 'Messages', 3);
  await box(page).fill('shop.order.');
  await expect
    .poll(() => options(page).allTextContents(), polling)
    .toEqual([
      'Topicsshop.order.*',
      'Topicshop.order.paid',
      'Topicshop.order.sent',
      'Keyshop.order.',
      'Tenantshop.order.',
      'Aggregate idshop.order.',
      'Dedupe keyshop.order.',
    ]);
  expect(await accessibilityProblems(page)).toEqual([]);
  await box(page).press('Enter');
  await expectRows(page, 'Messages', 2);
  await box(page).fill('shop.user');
  await options(page).filter({ hasText: 'shop.user.new' }).click();
  await expectRows(page, 'Messages', 1);
  await page.getByRole('link', { name: /^Clear/ }).click();
  await box(page).fill('shop');
  await options(page).filter({ hasText: 'Key' }).first().waitFor();
  await box(page).press('ArrowUp');
  await box(page).press('ArrowUp');
  await box(page).press('ArrowUp');
  await box(page).press('ArrowUp');
  await box(page).press('Enter');
  await expectRows(page, 'Messages', 3);
  expect(page.url()).toContain('key=shop');
  await box(page).fill(queue.name);
  await options(page).filter({ hasText: 'Destination' }).click();
  await expect.poll(() => page.url(), polling).toContain(`destination=${queue.name}`);
});

it('W5 known tenants are offered in the search box and in the palette', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(2, { tenantId: 'initech-eu' });
  const page = await browser.open(`${await serve()}#/messages?destination=${queue.name}`);
  await box(page).fill('initech');
  await options(page).filter({ hasText: 'initech-eu' }).click();
  await expectRows(page, 'Messages', 2);
  expect(page.url()).toContain('tenantId=initech-eu');
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Command' }).fill('initech');
  await page.getByRole('dialog').getByRole('option').filter({ hasText: 'initech-eu' }).click();
  await page.waitForURL((url) => url.hash === '#/messages?tenantId=initech-eu');
});

it.each(['messages', 'dead-letters'])(
  'W5 typed topics, destinations and tenants are completed on the screen of %s',
  async (screen) => {
    const queue = await makeQueue(db);
    await makeDead(queue, 1, 'odd', { topic: 'umbrella.opened', tenantId: 'umbrella-corp' });
    const page = await browser.open(`${await serve()}#/${screen}`);
    const completions = (field: Locator) =>
      field.evaluate((input: HTMLInputElement) =>
        [...(input.list?.options ?? [])].map(({ value }) => value),
      );
    const expected = { Topic: 'umbrella.opened', Destination: queue.name, Tenant: 'umbrella-corp' };
    for (const [label, value] of Object.entries(expected)) {
      const field = page.getByRole('search').getByLabel(label, { exact: true });
      await field.pressSequentially(value.slice(0, -2));
      await expect.poll(() => completions(field), polling).toContain(value);
      expect(await accessibilityProblems(page)).toEqual([]);
      await field.fill('');
    }
  },
);

it('W5 an id in the search box opens the message, and a wrong word says what to give', async () => {
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne();
  const page = await browser.open(`${await serve()}#/messages`);
  await box(page).fill('status:lost');
  await page.getByRole('alert').getByText('status is "lost": give pending').waitFor();
  await box(page).press('Enter');
  expect(page.url()).not.toContain('status');
  await box(page).fill(id);
  await box(page).press('Enter');
  await page.waitForURL((url) => url.hash === `#/messages/${id}`);
});

it('W5 the search box searches declared fields of payloads, completes them, and opens what it finds', async () => {
  const queue = await makeQueue(db);
  const [, wanted = ''] = await queue.enqueueAll([
    { payload: { orderId: 4710 } },
    { payload: { orderId: 4711 } },
    { payload: { customer: { email: 'ada@example.com' } } },
  ]);
  const address = await serve(['orderId', 'customer.email']);
  const page = await browser.open(`${address}#/messages?destination=${queue.name}`);
  await expectRows(page, 'Messages', 3);
  await box(page).fill('payload.or');
  await options(page).filter({ hasText: 'payload.orderId:' }).waitFor();
  expect(await accessibilityProblems(page)).toEqual([]);
  await box(page).press('Enter');
  await expect.poll(() => box(page).inputValue(), polling).toBe('payload.orderId:');
  await box(page).pressSequentially('4711');
  await box(page).press('Enter');
  await expectRows(page, 'Messages', 1);
  expect(page.url()).toContain(`destination=${queue.name}&payload.orderId=4711`);
  const field = page.getByLabel('Payload orderId');
  expect(await field.inputValue()).toBe('4711');
  await page.getByRole('link', { name: 'Clear 2' }).waitFor();
  expect(await accessibilityProblems(page)).toEqual([]);
  await page.reload();
  await expectRows(page, 'Messages', 1);
  await field.fill('4712');
  await field.press('Enter');
  await page.getByText('No message matches.').waitFor();
  await page.goBack();
  await expectRows(page, 'Messages', 1);
  await rowsOf(page, 'Messages').locator('a').first().click();
  await page.waitForURL((url) => url.hash === `#/messages/${wanted}`);
  await page.goto(`${address}#/messages?destination=${queue.name}`);
  await box(page).fill('ada@example.com');
  await options(page).filter({ hasText: 'Payload customer.email' }).click();
  await expectRows(page, 'Messages', 1);
  expect(page.url()).toContain('payload.customer.email=ada%40example.com');
});

it('W5 a filter by payload can be saved, is part of Retry failed, and an undeclared field is refused', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueAll([{ payload: { orderId: 1 } }, { payload: { orderId: 2 } }]);
  const page = await browser.open(
    `${await serve(['orderId'])}#/messages?topic=${queue.topic}&payload.orderId=2`,
    { expected: /400/ },
  );
  await expectRows(page, 'Messages', 1);
  await page.getByRole('button', { name: 'Save filters…' }).click();
  await page.getByText(`topic ${queue.topic}, payload.orderId 2`).waitFor();
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('Order 2');
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: 'Clear 2' }).click();
  await page.getByRole('link', { name: 'Order 2' }).click();
  await expectRows(page, 'Messages', 1);
  await page.getByRole('button', { name: 'Retry failed' }).click();
  const sent = page.waitForRequest(/retrying\/retry/);
  await page.getByRole('dialog').getByRole('button', { name: 'Retry now' }).click();
  expect((await sent).postDataJSON()).toEqual({ topic: queue.topic, 'payload.orderId': '2' });
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await box(page).fill('payload.card:1');
  await box(page).press('Enter');
  await page
    .getByRole('alert')
    .getByText(/payload\.card is not a parameter here/i)
    .waitFor();
});

it('W5 filters can be saved under a name, opened and removed, also after a reload', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(2, { tenantId: 'acme' });
  await queue.enqueue(1);
  const address = await serve();
  const page = await browser.open(`${address}#/messages?topic=${queue.topic}&tenantId=acme`);
  await expectRows(page, 'Messages', 2);
  await page.getByRole('button', { name: 'Save filters…' }).click();
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('Of acme');
  await page.keyboard.press('Enter');
  const saved = page.getByRole('link', { name: 'Of acme' });
  await saved.waitFor();
  await page.goto(`${address}#/messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 3);
  await page.reload();
  await saved.click();
  await expectRows(page, 'Messages', 2);
  expect(await accessibilityProblems(page)).toEqual([]);
  await page.getByRole('button', { name: 'Remove Of acme' }).click();
  await saved.waitFor({ state: 'detached' });
  await page.reload();
  await expectRows(page, 'Messages', 2);
  expect(await saved.count()).toBe(0);
});

it('W5 each screen has its own saved filters, and the palette has all', async () => {
  const address = await serve();
  const page = await browser.open(`${address}#/dead-letters?tenantId=acme`);
  const save = async (name: string) => {
    await page.getByRole('button', { name: 'Save filters…' }).click();
    await page.getByRole('textbox', { name: 'Name', exact: true }).fill(name);
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name, exact: true }).waitFor();
  };
  const saved = () => page.getByRole('list', { name: 'Saved filters' }).getByRole('link');
  await save('Mine');
  await page.goto(`${address}#/audit?actor=ada`);
  await page.getByRole('heading', { name: 'Audit' }).waitFor();
  expect(await saved().count()).toBe(0);
  await save('Mine');
  await save('Of ada');
  expect(await accessibilityProblems(page)).toEqual([]);
  await page.getByRole('button', { name: 'Remove Of ada' }).click();
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Command' }).fill('mine');
  const offered = page.getByRole('dialog').getByRole('option').filter({ hasText: 'Saved' });
  await expect
    .poll(() => offered.allTextContents(), polling)
    .toEqual(['Saved filtersDead letters: Mine', 'Saved filtersAudit: Mine']);
  await offered.first().click();
  await page.waitForURL((url) => url.hash === '#/dead-letters?tenantId=acme');
  expect(await saved().allTextContents()).toEqual(['Mine']);
  expect(await accessibilityProblems(page)).toEqual([]);
});
