// Names on the page: on one line, and visible even if they are white space.

import { expect, it } from 'vitest';

import { visibleName } from '../../dashboard/src/visible-name.js';

it('P13 a name of white space only is marked', () => {
  expect(visibleName('  ')).toBe('␠␠');
  expect(visibleName('\u00a0\u3000')).toBe('␠␠');
  expect(visibleName('\t')).toBe(String.raw`\u0009`);
  expect(visibleName(' \n')).toBe(String.raw` \u000a`);
});

it('P13 other names keep their spaces, and are on one line', () => {
  expect(visibleName(' Zoë \t1')).toBe(String.raw` Zoë \u00091`);
  expect(visibleName('')).toBe('');
});
