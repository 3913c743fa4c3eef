// Compares a screen with its pictures in test/browser/pictures/, in both themes. What differs between two runs, such as
// times and numbers, is replaced before, so a picture and the screen are alike point by point, and a missing button is
// found. A picture is half as wide as the screen. After a wanted change: WAYBILL_NEW_PICTURES=1 npx vitest run widths, then
// look at them.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import type { Page } from 'playwright-core';

const folder = path.resolve('test/browser/pictures');
const isNew = process.env['WAYBILL_NEW_PICTURES'] !== undefined;
/** How many points of a picture may differ. Without an icon of a row, 45 or more do. */
const allowedPoints = 25;

/** On CI, another font is an error: without this the pictures would no longer be compared anywhere. */
const isRequired = Boolean(process.env['CI']) && process.platform === 'linux';
/** The width of some letters in the font of the pictures. */
const lettersPx = 172;

/** Whether this machine has the font of the pictures: with others, texts end and break elsewhere. */
export async function isComparable(page: Page): Promise<boolean> {
  const px = await page.evaluate(() => {
    const context = document.createElement('canvas').getContext('2d') as CanvasRenderingContext2D;
    context.font = getComputedStyle(document.body).font;
    return Math.round(context.measureText('Waybill delivers messages').width);
  });
  return isNew || isRequired || px === lettersPx;
}

export type Theme = 'light' | 'dark';

/** What is wrong with the look of the screen; nothing is an empty list. `blank`: an empty page that compares. */
export async function differencesOf(
  page: Page,
  blank: Page,
  { name, themes }: { name: string; themes: readonly Theme[] },
): Promise<string[]> {
  const problems: string[] = [];
  await page.evaluate(showStill);
  for (const theme of themes) {
    await page.emulateMedia({ colorScheme: theme });
    const shot = await page.screenshot({ animations: 'disabled', caret: 'hide' });
    const problem = await compareWith(blank, shot, `${name}-${theme}`);
    if (problem !== null) problems.push(problem);
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.evaluate(showLive);
  return problems;
}

async function compareWith(blank: Page, shot: Buffer, name: string): Promise<string | null> {
  const file = path.join(folder, `${name}.webp`);
  const known = !isNew && existsSync(file) ? readFileSync(file) : null;
  const { small, points } = await compare(blank, shot, known);
  if (isNew) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(file, Buffer.from(small, 'base64'));
    return null;
  }
  if (points === null) return `${name} has no picture: run with WAYBILL_NEW_PICTURES=1`;
  return points <= allowedPoints ? null : `${points} points of ${name} differ from its picture`;
}

/**
 * Shows a copy of the page in its place, which live data does not change, without what differs between two runs: times,
 * numbers, ids, and what is counted over time.
 */
async function showStill(): Promise<void> {
  const live = document.getElementById('app');
  if (live === null) return;
  const still = live.cloneNode(true) as HTMLElement;
  const selects = live.querySelectorAll('select');
  still.querySelectorAll('select').forEach((select, index) => {
    select.selectedIndex = selects[index]?.selectedIndex ?? 0;
  });
  for (const time of still.querySelectorAll('time')) time.textContent = '0:00';
  const counted = '.chart :is(.legend, .plot, .axis), .spark, .tile-value, .tile-none, .tile-note';
  for (const each of still.querySelectorAll<HTMLElement | SVGElement>(counted))
    each.style.visibility = 'hidden';
  const texts = document.createTreeWalker(still, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text !== null; text = texts.nextNode())
    text.nodeValue =
      text.nodeValue
        ?.replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'an-id')
        .replaceAll(/…[0-9a-f]{8}\b/g, '…an-id')
        .replaceAll(/\bep_[0-9a-f]+/g, 'ep_id')
        .replaceAll(/\d+([.,:]\d+)*/g, '0')
        .replaceAll(/\b0 (ms|s|min|h|d)\b/g, '0 s') ?? null;
  live.replaceWith(still);
  scrollTo(0, 0);
  await Promise.all([...still.querySelectorAll('img')].map((image) => image.decode()));
  Object.assign(window, { live });
}

function showLive(): void {
  document.getElementById('app')?.replaceWith((window as unknown as { live: Element }).live);
}

/** Makes the screenshot smaller, and counts the points that are clearly lighter or darker than in the picture. */
async function compare(
  page: Page,
  shot: Buffer,
  known: Buffer | null,
): Promise<{ small: string; points: number | null }> {
  const address = (type: string, data: Buffer): string =>
    `data:image/${type};base64,${data.toString('base64')}`;
  return page.evaluate(
    async ({ now, before }) => {
      const draw = async (source: string, width?: number, height?: number) => {
        const image = new Image();
        image.src = source;
        await image.decode();
        const canvas = document.createElement('canvas');
        canvas.width = width ?? Math.round(image.width / 2);
        canvas.height = height ?? Math.round(image.height / 2);
        const context = canvas.getContext('2d') as CanvasRenderingContext2D;
        context.imageSmoothingQuality = 'high';
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        return { canvas, data: context.getImageData(0, 0, canvas.width, canvas.height).data };
      };
      const { canvas } = await draw(now);
      const compressed = canvas.toDataURL('image/webp', 0.6);
      const small = compressed.split(',')[1] ?? '';
      if (before === null) return { small, points: null };
      // compressed as the picture is, which changes the colours at edges
      const { data } = await draw(compressed, canvas.width, canvas.height);
      const other = (await draw(before, canvas.width, canvas.height)).data;
      let points = 0;
      for (let at = 0; at < data.length; at += 4) {
        const far = [0, 1, 2].some(
          (part) => Math.abs((data[at + part] ?? 0) - (other[at + part] ?? 0)) > 25,
        );
        if (far) points += 1;
      }
      return { small, points };
    },
    { now: address('png', shot), before: known && address('webp', known) },
  );
}
