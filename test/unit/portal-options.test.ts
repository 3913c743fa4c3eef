// Options of the customer portal: what is refused, and that every colour of a text can be read.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { resolveServerOptions } from '../../src/server/options.js';
import { colourSheet, contrast, defaultColours } from '../../src/server/portal-colours.js';
import type { PortalOptions } from '../../src/server/portal-options.js';
import { portalFiles } from '../../src/server/portal.js';

const large = path.join(mkdtempSync(path.join(tmpdir(), 'portal-')), 'large.png');
writeFileSync(large, Buffer.alloc(262_145));

describe('a portal', () => {
  it.each([
    [{ name: '' }, 'server.portal.name is "": give a name of 1 to 60 characters'],
    [{ name: 'a\nb' }, 'server.portal.name is "a\\nb"'],
    [{ title: 'x' }, 'server.portal.title is not an option: use name, logo'],
    [{ logo: 'logo.gif' }, 'server.portal.logo is "logo.gif": give a file that ends with .svg'],
    [{ logo: 'none.svg' }, 'server.portal.logo is "none.svg": the file cannot be read'],
    [{ logo: large }, 'the file has 262145 bytes: give at most 262144'],
    [{ embeddedBy: ['*'] }, 'server.portal.embeddedBy[0] is "*": give an origin'],
    [{ embeddedBy: ['http://example.com'] }, 'server.portal.embeddedBy[0] is "http://example.com"'],
    [{ topics: ['order.'] }, 'server.portal.topics[0] is "order."'],
    [{ colours: { accent: '#123456' } }, 'server.portal.colours.accent is not an option'],
    [{ colours: { light: { accent: 'red' } } }, 'give a colour such as #2f5bd7'],
    [
      { colours: { light: { text: '#cccccc' } } },
      'server.portal.colours.light.text is "#cccccc": its contrast on ground #f5f6f8 is 1.5, and at least 4.5 is needed',
    ],
    [{ colours: { dark: { panel: '#ffffff' } } }, 'its contrast on panel #ffffff is'],
  ])('W5 with %j is refused with the reason', (portal, words) => {
    expect(() => resolveServerOptions({ portal: portal as PortalOptions })).toThrow(words);
  });

  it('W5 without options has a name, and no frame around it', () => {
    expect(resolveServerOptions().portal).toEqual({ name: 'Webhooks' });
  });
});

it('W5 P13 a name cannot add anything to the page', () => {
  const { portal } = resolveServerOptions({ portal: { name: `</title><script>'"&` } });
  const page = portalFiles('<head></head>', portal).get('/portal');
  const text = new TextDecoder().decode(page?.body);
  expect(text).not.toContain('<script>');
  expect(text.match(/</g)).toHaveLength(6);
});

it('W5 the default colours are those of the style sheet', async () => {
  const { readFile } = await import('node:fs/promises');
  const css = await readFile('dashboard/src/style/base.css', 'utf8');
  const [light = '', dark = ''] = css.split(":root[data-theme='dark']");
  for (const [theme, text] of [
    ['light', light],
    ['dark', dark],
  ] as const)
    for (const [name, colour] of Object.entries(defaultColours[theme]))
      expect(text, `${theme} ${name}`).toContain(`--${name}: ${colour};`);
});

it('W5 with any colours, text can be read on everything behind it', () => {
  const colour = fc
    .integer({ min: 0, max: 0xff_ff_ff })
    .map((value) => `#${value.toString(16).padStart(6, '0')}`);
  fc.assert(
    fc.property(colour, colour, colour, colour, (accent, ground, panel, text) => {
      const theme = { accent, ground, panel, text };
      const asked = { portal: { colours: { light: theme } } };
      try {
        resolveServerOptions(asked);
      } catch {
        return;
      }
      const [first = ''] = colourSheet({ light: theme, dark: theme }).split('\n');
      const made = new Map(
        [...first.matchAll(/--([\w-]+):(#\w{6})/g)].map(([, name = '', value = '']) => [
          name,
          value,
        ]),
      );
      const value = (name: string): string => made.get(name) ?? '';
      expect(contrast(value('on-brand'), accent)).toBeGreaterThan(4.5);
      for (const front of ['muted', 'accent', 'green', 'red', 'amber'])
        for (const back of ['ground', 'panel'])
          expect(contrast(value(front), value(back)), front).toBeGreaterThanOrEqual(4.5);
    }),
    { numRuns: 3000 },
  );
});
