// How a message becomes the JSON object for the database, and which messages are refused.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { MessageRefusedError } from '../../src/core/errors.js';
import { serializeJson } from '../../src/core/json.js';
import { defaultLimits, serializeMessage } from '../../src/core/message.js';
import type { Message } from '../../src/core/message.js';

const limit = 1024;

function parsed(message: Message): unknown {
  return JSON.parse(serializeMessage(message, { ...defaultLimits, maxPayloadBytes: limit }));
}

function refusal(work: () => unknown): { field: string; message: string } {
  try {
    work();
  } catch (error) {
    if (error instanceof MessageRefusedError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('a message', () => {
  it('P13 has own fields only: what its class or a polluted prototype adds is not sent', () => {
    class Keyed {
      topic = 'plain';
      get key() {
        return 'of the class';
      }
    }
    expect(parsed(new Keyed())).toEqual({ topic: 'plain', payload: null });
    const polluted = Object.create({ tenantId: 'other' }) as Message;
    expect(parsed(Object.assign(polluted, { topic: 'plain' }))).not.toHaveProperty('tenantId');
  });

  it('M2 has every field that was given and no other', () => {
    const message: Message = {
      topic: 'user.registered',
      payload: { a: [1, 'x', null, true] },
      namespace: 'shop',
      tenantId: 'acme',
      key: 'k',
      dedupeKey: 'acme/1',
      aggregateType: 'user',
      aggregateId: '7',
      headers: { trace: 'abc' },
      delayMs: 5,
    };
    expect(parsed(message)).toEqual(message);
  });

  it('M2 without a payload carries null', () => {
    expect(parsed({ topic: 't' })).toEqual({ topic: 't', payload: null });
    expect(parsed({ topic: 't', payload: undefined })).toEqual({ topic: 't', payload: null });
  });

  it.each([0, '', false, [], {}])('M2 carries the payload %j unchanged', (payload) => {
    expect(parsed({ topic: 't', payload })).toEqual({ topic: 't', payload });
  });

  it('M2 writes times in one format, whether given as a Date or as text', () => {
    const iso = '2030-01-02T03:04:05.678Z';
    for (const availableAt of [new Date(iso), iso, '2030-01-02T04:04:05.678+01:00']) {
      expect(parsed({ topic: 't', availableAt })).toMatchObject({ availableAt: iso });
    }
  });

  it('M2 counts the bytes of the payload, not its characters', () => {
    const fits = 'ü'.repeat((limit - 2) / 2);
    expect(parsed({ topic: 't', payload: fits })).toMatchObject({ payload: fits });
    const error = refusal(() => parsed({ topic: 't', payload: `${fits}u` }));
    expect(error).toMatchObject({ field: 'payload' });
    expect(error.message).toContain(`has ${limit + 1} bytes, the limit is ${limit}`);
  });

  it.each([null, undefined, 'text', 7])('M2 that is %j is refused', (message) => {
    expect(refusal(() => parsed(message as unknown as Message)).field).toBe('message');
  });

  it.each<[string, object]>([
    ['topic', { topic: 7 }],
    ['topic', { topic: null }],
    ['namespace', { topic: 't', namespace: null }],
    ['tenantId', { topic: 't', tenantId: 7 }],
    ['key', { topic: 't', key: {} }],
    ['headers', { topic: 't', headers: 'x' }],
    ['headers.a', { topic: 't', headers: { a: undefined } }],
    ['headers.a', { topic: 't', headers: { a: '\u0000' } }],
    ['delayMs', { topic: 't', delayMs: '5' }],
    ['delayMs', { topic: 't', delayMs: Number.NaN }],
    ['availableAt', { topic: 't', availableAt: 'tomorrow' }],
    ['availableAt', { topic: 't', availableAt: null }],
    ['availableAt', { topic: 't', availableAt: 7 }],
    ['availableAt', { topic: 't', availableAt: new Date(Number.NaN) }],
  ])(
    'M2 with a %s of the wrong type is refused by that name, with the remedy',
    (field, message) => {
      const { field: refused, message: says } = refusal(() => parsed(message as Message));
      expect(refused).toBe(field);
      expect(says).toMatch(/: (?:give|name|leave)|must be|near .*: remove/);
    },
  );

  it('M2 a payload text that cannot be stored is shown, with the remedy', () => {
    const says = (payloadText: string) =>
      refusal(() => parsed({ topic: 't', payloadText })).message;
    expect(says('{userId: 42}')).toMatch(/^payloadText "\{userId: 42\}" is not JSON \(.*\): give /);
    expect(says('{"a": "\ud83d"}')).toMatch(/half of a surrogate pair near .*: remove it/);
  });
});

describe('JSON for PostgreSQL', () => {
  it('M2 any JSON value without NUL survives unchanged', () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'grapheme' }), (value) => {
        const text = JSON.stringify(value);
        fc.pre(!text.includes('\\u0000'));
        expect(serializeJson('payload', value)).toBe(text);
      }),
    );
  });

  it('M2 a text is refused exactly when it has NUL or half of a surrogate pair', () => {
    // few different code units, so that escapes, backslashes and halves meet often
    const escapes = fc.constantFrom('ud83d', 'ude9a');
    const single = fc.constantFrom(
      '\\',
      'u',
      '0',
      'd',
      '8',
      '\u0000',
      '\ud83d',
      '\ude9a',
      '"',
      'a',
    );
    const unit = fc.oneof({ weight: 5, arbitrary: single }, { weight: 1, arbitrary: escapes });
    fc.assert(
      fc.property(fc.array(unit, { maxLength: 12 }), (units) => {
        const text = units.join('');
        const unfit = text.includes('\u0000') || !text.isWellFormed();
        let refused = false;
        try {
          serializeJson('payload', { [text]: text });
        } catch {
          refused = true;
        }
        expect(refused).toBe(unfit);
      }),
      { numRuns: 2000 },
    );
  });

  it('M2 objects with toJSON are written by it', () => {
    expect(serializeJson('payload', { at: new Date(0) })).toBe('{"at":"1970-01-01T00:00:00.000Z"}');
  });

  it('M2 an undefined property is absent, an undefined item is refused', () => {
    expect(serializeJson('payload', { a: undefined, b: 1 })).toBe('{"b":1}');
    expect(refusal(() => serializeJson('payload', [undefined])).field).toBe('payload[0]');
  });

  it('M2 only payloads that are nested too deeply are refused', () => {
    const nested = (depth: number): unknown => {
      let value: unknown = 1;
      for (let level = 0; level < depth; level += 1) value = [value];
      return value;
    };
    expect(serializeJson('payload', nested(200))).toHaveLength(401);
    expect(refusal(() => serializeJson('payload', nested(500))).message).toContain('nested deeper');
  });

  it('M2 the result of toJSON is checked too', () => {
    refusal(() => serializeJson('payload', { toJSON: () => ({ a: Number.NaN }) }));
  });

  it('M2 objects that JSON would write as {} are refused', () => {
    for (const value of [Promise.resolve(1), /x/, new Error('x'), new WeakMap()]) {
      refusal(() => serializeJson('payload', { value }));
    }
  });
});
