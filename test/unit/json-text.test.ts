// JSON text from a producer: it is passed on unchanged, or refused because PostgreSQL could not store it.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { MessageRefusedError } from '../../src/core/errors.js';
import { checkJsonText } from '../../src/core/json-text.js';

function refusal(text: unknown): string {
  try {
    checkJsonText('payloadText', text);
  } catch (error) {
    if (error instanceof MessageRefusedError && error.field === 'payloadText') return error.message;
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('a text', () => {
  it('M2 that is JSON passes unchanged', () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'grapheme' }), (value) => {
        const text = JSON.stringify(value);
        fc.pre(!text.includes('\\u0000'));
        expect(checkJsonText('payloadText', text).text).toBe(text);
      }),
    );
  });

  it('M2 is measured without the contents of its strings', () => {
    // few different characters, so that quotes, backslashes, brackets and exponents meet often
    const character = fc.constantFrom('"', '\\', '[', '{', ']', '}', '1', 'e', '9', 'ü', ' ');
    fc.assert(
      fc.property(fc.array(character, { maxLength: 20 }), (some) => {
        const string = JSON.stringify(some.join(''));
        const nested = (depth: number) => `${'['.repeat(depth)}${string}${']'.repeat(depth)}`;
        const bytes = Buffer.byteLength(nested(200));
        expect(checkJsonText('payloadText', nested(200)).bytes).toBe(bytes);
        expect(refusal(nested(201))).toMatch(/nested deeper than 200 levels: flatten it/);
      }),
      { numRuns: 1000 },
    );
  });

  it.each([
    ['lists', '[', ']', ''],
    ['objects', '{"a":', '}', '1'],
    ['both', '[{"a":', '}]', '1'],
  ])('M2 of nested %s is refused from the 201st level on', (_what, open, close, inside) => {
    const nested = (times: number) => open.repeat(times) + inside + close.repeat(times);
    const most = open.startsWith('[{') ? 100 : 200;
    expect(checkJsonText('payloadText', nested(most)).text).toBe(nested(most));
    expect(refusal(nested(most + 1))).toMatch(/payloadText is nested deeper than 200 levels/);
    expect(refusal(nested(20_000))).toMatch(/payloadText is nested deeper than 200 levels/);
  });

  it('M2 with siblings at every level is not nested by their number', () => {
    const text = `[${Array.from({ length: 1000 }, () => '[{"a":[]},{}]').join(', ')}]`;
    expect(checkJsonText('payloadText', text).text).toBe(text);
  });

  it.each([null, undefined, 7, {}, '', '{', "'a'", '01', '1e', '[1,]'])(
    'M2 that is %j is refused',
    (text) => {
      expect(refusal(text)).toMatch(/is not (JSON|text)/);
    },
  );
});

describe('a number', () => {
  it.each([
    '1e200000',
    '-1e200000',
    '1E+200000',
    '[0, 1e131072]',
    '{"a": {"b": -12e131071}}',
    '1e-16384',
    '1.5e-16383',
    `1${'0'.repeat(131_072)}`,
    `0.${'1'.repeat(16_384)}`,
    '1e99999999999999999999',
  ])('M2 outside the range of numeric is refused: %.30s', (text) => {
    expect(refusal(text)).toMatch(
      /^payloadText has the number [\d.eE+-]{1,39}…?, which PostgreSQL cannot store: give at most 131072 digits before and 16383 after the decimal point, or send it as a string$/,
    );
  });

  it.each(['"1e200000"', '["\\"1e200000", "\\\\", "1e200000"]', '{"1e200000": 0}'])(
    'M2 within a string is not checked: %s',
    (text) => {
      expect(checkJsonText('payloadText', text).bytes).toBe(text.length);
    },
  );

  it.each([
    ['1e5', '100000'],
    ['-1e5', '-100000'],
    ['1e131071', `1${'0'.repeat(131_071)}`],
    ['1.5e-3', '0.0015'],
    ['[1e5,2,1e10]', '[100000, 2, 10000000000]'],
  ])('M2 counts with the length of its written-out form: %s', (text, writtenOut) => {
    expect(checkJsonText('payloadText', text).bytes).toBe(writtenOut.length);
  });
});
