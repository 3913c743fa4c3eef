// Invisible characters are escaped in displayed text, and JSON keeps its meaning.

import fc from 'fast-check';
import { expect, it } from 'vitest';

import { visible, visibleLine } from '../../src/core/visible-text.js';

const bidi = [0x061c, 0x200e, 0x200f, ...range(0x202a, 0x202e), ...range(0x2066, 0x2069)];
const controls = [...range(0x00, 0x08), ...range(0x0b, 0x1f), ...range(0x7f, 0x9f)];
const others = [0xad, 0x200b, 0x2028, 0x2029, 0x2060, 0xfeff];

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, at) => from + at);
}

it('P13 control characters, text directions and separators become escapes', () => {
  for (const code of [...bidi, ...controls, ...others])
    expect(visible(`a${String.fromCharCode(code)}b`)).toBe(
      `a\\u${code.toString(16).padStart(4, '0')}b`,
    );
  // two units in UTF-16
  expect(visible('\u{e0041}')).toBe(String.raw`\udb40\udc41`);
});

it('P13 everything else is unchanged', () => {
  const text = 'Żółć 👩‍💻 می‌خواهم\t\\u202e\n12\u202f345 €';
  expect(visible(text)).toBe(text);
  expect(visibleLine('a\tb\nc')).toBe(String.raw`a\u0009b\u000ac`);
});

it('P13 JSON keeps its meaning, and contains no invisible characters', () => {
  const unit = fc.oneof(
    fc.constantFrom(...[...bidi, ...controls, ...others].map((code) => String.fromCharCode(code))),
    fc.string({ unit: 'binary', maxLength: 3 }),
  );
  const text = fc.array(unit).map((units) => units.join(''));
  fc.assert(
    fc.property(fc.dictionary(text, text), (value) => {
      const shown = visible(JSON.stringify(value));
      expect(JSON.parse(shown)).toEqual(JSON.parse(JSON.stringify(value)));
      expect(shown).not.toMatch(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\u2028\u2029]/u);
    }),
  );
});
