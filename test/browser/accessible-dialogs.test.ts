// Accessibility of what the addresses of the screens do not show, in both themes: the login, the screens without content,
// the dialogs, and the bar with results.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { webhook } from '../../src/destinations/webhook/webhook.js';
import { answer, expectNoDialog, expectRows, rowsOf, testBrowser } from '../support/browser.js';
import { makeBlocked, makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { loopback, serve } from '../support/relay-partner.js';
import { configOf, sendOne, startRelay, untilEnded } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { problemsInBothThemes } from './accessibility.js';

const db = testDatabase();
const browser = testBrowser();

/** Checks what is open now; `what` names it in a failure. */
async function expectAccessible(page: Page, what: string): Promise<void> {
  expect.soft([what, await problemsInBothThemes(page)]).toEqual([what, []]);
}

async function open(place: string): Promise<Page> {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  return browser.open(`${url}/#/${place}`);
}

const dialogOf = (page: Page) => page.locator('dialog[open]');

async function escape(page: Page): Promise<void> {
  await page.keyboard.press('Escape');
  await expectNoDialog(page);
}

it('W5 the login and the screens without content are accessible in either theme', async () => {
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/#/nowhere`, { expected: /401/ });
  await page.getByLabel('Token').fill('wbt_wrong');
  await expectAccessible(page, 'login');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').waitFor();
  await expectAccessible(page, 'refused login');
  await page.getByLabel('Token').fill(await server.token('read', 'acme'));
  await page.keyboard.press('Enter');
  await page.getByText('No screen has this address.').waitFor();
  await expectAccessible(page, 'unknown address');
  await page.goto(`${server.url}/#/relays`);
  await page.getByRole('heading', { name: 'Not for this token' }).waitFor();
  await expectAccessible(page, 'not for this token');
  await page.context().clearCookies();
  await page.getByRole('link', { name: 'Messages' }).first().click();
  await page.getByText('Your login has ended').waitFor();
  await expectAccessible(page, 'ended login');
});

it('W5 questions, typed confirmations and results of dead letters are accessible in either theme', async () => {
  const queue = await makeQueue(db, { whenDead: 'block' });
  await makeBlocked(queue, 'key');
  await makeDead(queue, 3, 'no');
  const page = await open(`dead-letters?destination=${queue.name}`);
  await expectRows(page, 'Dead letters', 4);
  const row = rowsOf(page, 'Dead letters').last();
  await row.getByRole('checkbox').check();
  await page.getByText('1 letter selected').waitFor();
  await expectAccessible(page, 'selection');
  await page.getByRole('button', { name: 'Discard selected' }).click();
  await dialogOf(page).getByLabel('to confirm').waitFor();
  await expectAccessible(page, 'typed confirmation');
  await dialogOf(page).getByLabel('to confirm').fill('1');
  await expectAccessible(page, 'enabled confirmation');
  await answer(page, 'Discard them');
  await dialogOf(page).locator('.job[data-state=done]').waitFor();
  await expectAccessible(page, 'finished job');
  await dialogOf(page).getByRole('button', { name: 'Close' }).last().click();
  await expectNoDialog(page);
  await expectRows(page, 'Dead letters', 3);
  await row.getByRole('button', { name: 'Discard' }).click();
  await dialogOf(page).waitFor();
  await expectAccessible(page, 'question');
  await answer(page, 'Discard');
  await expectRows(page, 'Dead letters', 2);
  await row.getByRole('button', { name: 'Retry' }).click();
  await page.getByRole('region', { name: 'Retried' }).getByText('waiting').waitFor();
  await page.getByRole('region', { name: 'Discarded' }).waitFor();
  await expectAccessible(page, 'results');
});

it('W5 the dialogs of messages, the palette and the keys are accessible in either theme', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(2);
  const page = await open(`messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 2);
  await page.getByRole('button', { name: 'Payload' }).first().click();
  await dialogOf(page).locator('pre').waitFor();
  await expectAccessible(page, 'payload');
  await escape(page);
  await page.keyboard.press('?');
  await dialogOf(page).getByText('goes to the first row of the list').waitFor();
  await expectAccessible(page, 'keys');
  await escape(page);
  await page.keyboard.press('Control+k');
  await dialogOf(page).getByRole('option').first().waitFor();
  await expectAccessible(page, 'palette');
  await page.keyboard.type('status:lost');
  await page.getByRole('alert').waitFor();
  await expectAccessible(page, 'refused command');
  await escape(page);
  await page.getByRole('button', { name: 'Save filters…' }).click();
  await dialogOf(page).waitFor();
  await expectAccessible(page, 'saving filters');
  await escape(page);
  await page.getByRole('button', { name: 'Retry failed' }).click();
  await dialogOf(page).waitFor();
  await expectAccessible(page, 'question before retries');
  await escape(page);
  await page.getByRole('button', { name: 'Replay…' }).click();
  const replay = dialogOf(page);
  await replay.getByLabel('To which destination').selectOption(queue.name);
  await expectAccessible(page, 'replay');
  await replay.getByRole('button', { name: 'Plan' }).click();
  await replay.getByLabel('to confirm').waitFor();
  await expectAccessible(page, 'planned replay');
});

it('W5 the request of a try is accessible in either theme', async () => {
  const { url } = await serve((_, response) => void response.writeHead(422).end('{"no": true}'));
  const destinations = {
    crm: webhook({ url, allowedNetworks: loopback, terminalCodes: [422] }),
  };
  await startRelay(db, { destinations });
  const id = await sendOne(db, { topic: 'crm', payload: { n: 1 } });
  await untilEnded(db, 'crm');
  const server = await serveDatabase(db, {
    authentication: 'none',
    config: configOf(db, { destinations }),
  });
  const page = await browser.open(`${server.url}/#/messages/${id}`);
  await page.getByRole('button', { name: 'Request' }).click();
  await dialogOf(page).getByText('POST').waitFor();
  await expectAccessible(page, 'request');
  await answer(page, 'Resend');
  await page.getByRole('dialog', { name: 'Send this message again?' }).waitFor();
  await expectAccessible(page, 'question before another try');
});
