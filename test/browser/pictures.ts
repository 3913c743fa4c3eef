// Compares a screen with its picture in test/browser/pictures/. A picture is a quarter as wide as the screen, so times
// and the smoothing of letters do not matter, but a column or a panel that has moved does. After a wanted change:
// WAYBILL_NEW_PICTURES=1 npx vitest run widths, then look at them.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import type { Page } from 'playwright-core';

const folder = path.resolve('test/browser/pictures');
const isNew = process.env['WAYBILL_NEW_PICTURES'] !== undefined;
/** The share of a picture that may differ: texts of other lengths, bars of charts. */
const allowed = 0.04;

/** What is wrong with the look of the screen; null if nothing is. `blank`: an empty page that compares. */
export async function differenceOf(page: Page, blank: Page, name: string): Promise<string | null> {
  const file = path.join(folder, `${name}.webp`);
  await page.evaluate(showOneId);
  const shot = await page.screenshot({ animations: 'disabled', caret: 'hide' });
  const known = !isNew && existsSync(file) ? readFileSync(file) : null;
  const { small, share } = await compare(blank, shot, known);
  if (isNew) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(file, Buffer.from(small, 'base64'));
    return null;
  }
  if (share === null) return `${name} has no picture: run with WAYBILL_NEW_PICTURES=1`;
  const percent = Math.round(100 * share);
  return share < allowed ? null : `${percent} % of ${name} differs from its picture`;
}

/** Shows one id in the place of all others: where an id breaks into two lines depends on its digits. */
function showOneId(): void {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text !== null; text = texts.nextNode())
    text.nodeValue =
      text.nodeValue?.replaceAll(
        /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g,
        '01a1de74-bca1-759a-ad30-c5d7fa53243b',
      ) ?? null;
}

/** Makes the screenshot smaller, and finds the share of points that are clearly lighter or darker than in the picture. */
async function compare(
  page: Page,
  shot: Buffer,
  known: Buffer | null,
): Promise<{ small: string; share: number | null }> {
  const address = (type: string, data: Buffer): string =>
    `data:image/${type};base64,${data.toString('base64')}`;
  return page.evaluate(
    async ({ now, before }) => {
      const draw = async (source: string, width?: number, height?: number) => {
        const image = new Image();
        image.src = source;
        await image.decode();
        const canvas = document.createElement('canvas');
        canvas.width = width ?? Math.round(image.width / 4);
        canvas.height = height ?? Math.round(image.height / 4);
        const context = canvas.getContext('2d') as CanvasRenderingContext2D;
        context.imageSmoothingQuality = 'high';
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        return { canvas, data: context.getImageData(0, 0, canvas.width, canvas.height).data };
      };
      const { canvas, data } = await draw(now);
      const small = canvas.toDataURL('image/webp', 0.8).split(',')[1] ?? '';
      if (before === null) return { small, share: null };
      const other = (await draw(before, canvas.width, canvas.height)).data;
      let differing = 0;
      for (let at = 0; at < data.length; at += 4) {
        const far = [0, 1, 2].some(
          (part) => Math.abs((data[at + part] ?? 0) - (other[at + part] ?? 0)) > 60,
        );
        if (far) differing += 1;
      }
      return { small, share: differing / (data.length / 4) };
    },
    { now: address('png', shot), before: known && address('webp', known) },
  );
}
