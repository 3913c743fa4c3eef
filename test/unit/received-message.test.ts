// How a received message becomes the JSON object for the inbox, and which messages are refused.

import { describe, expect, it } from 'vitest';

import { checkConsumer, checkReceived, serializeList } from '../../src/core/received-message.js';
import type { Received, ReceivedMessage } from '../../src/core/received-message.js';
import { claimedMessage } from '../support/claimed-message.js';

const id = '01a1de74-bca1-759a-ad30-c5d7fa53243b';

const parsed = (received: object): unknown =>
  JSON.parse(checkReceived(received as Received).serialized);

describe('a received message', () => {
  it('M11 is identified by its id or by a dedupe key, with its key and sequence', () => {
    const place = { key: 'k', namespace: 'shop', tenantId: 'acme' };
    const order = { sequence: 7, previousSequence: 5n };
    expect(parsed({ consumer: 'c', messageId: id, ...place, ...order })).toEqual({
      messageId: id,
      ...place,
      sequence: '7',
      previousSequence: '5',
    });
    expect(parsed({ consumer: 'c', dedupeKey: 'evt_1' })).toEqual({ dedupeKey: 'evt_1' });
  });

  it('M11 may be the message that a handler received', () => {
    const stream = { namespace: 'shop', tenantId: 'acme', key: 'k', dedupeKey: 'acme/d' };
    const message = claimedMessage({ id, ...stream, sequence: '12', previousSequence: '10' });
    const wanted = {
      messageId: id,
      key: 'k',
      namespace: 'shop',
      tenantId: 'acme',
      sequence: '12',
      previousSequence: '10',
    };
    expect(parsed({ consumer: 'c', message })).toEqual(wanted);
    expect(serializeList([message]).map((text) => JSON.parse(text) as unknown)).toEqual([wanted]);
    expect(parsed({ consumer: 'c', message: claimedMessage({ id }) })).toEqual({
      messageId: id,
      namespace: 'default',
    });
  });

  it.each([
    ['consumer', /is missing: name who processes/, { messageId: id }],
    ['consumer', /"" must have 1 to 255 bytes/, { consumer: '', messageId: id }],
    ['consumer', /7 is not text/, { consumer: 7, messageId: id }],
    ['consumer', /NUL/, { consumer: 'a\0', messageId: id }],
    ['messageId', /is missing: give it, or a dedupeKey/, { consumer: 'c' }],
    ['messageId', /is missing/, { consumer: 'c', message: {} }],
    ['message', /null is not an object/, { consumer: 'c', message: null }],
    [
      'messageId',
      /"evt_1" is not a UUID: give .* dedupeKey/,
      { consumer: 'c', messageId: 'evt_1' },
    ],
    ['messageId', /null is not a UUID/, { consumer: 'c', messageId: null }],
    ['messageId', /exclude each other/, { consumer: 'c', messageId: id, dedupeKey: 'd' }],
    ['dedupeKey', /"" must have 1 to 1024 bytes/, { consumer: 'c', dedupeKey: '' }],
    ['key', /1 to 512 bytes, it has 514/, { consumer: 'c', messageId: id, key: 'é'.repeat(257) }],
    ['namespace', /1 to 255/, { consumer: 'c', messageId: id, namespace: '' }],
    ['tenantId', /1 to 255/, { consumer: 'c', messageId: id, tenantId: '' }],
    ['sequence', /1 needs a key/, { consumer: 'c', messageId: id, sequence: 1 }],
    [
      'sequence',
      /0 must be a whole number from 1/,
      { consumer: 'c', messageId: id, key: 'k', sequence: 0 },
    ],
    ['sequence', /1\.5 must be a whole/, { consumer: 'c', messageId: id, key: 'k', sequence: 1.5 }],
    [
      'sequence',
      /"1e3" must be a whole/,
      { consumer: 'c', messageId: id, key: 'k', sequence: '1e3' },
    ],
    [
      'sequence',
      /to 9223372036854775807/,
      { consumer: 'c', messageId: id, key: 'k', sequence: '9223372036854775808' },
    ],
    [
      'previousSequence',
      /1 needs a sequence/,
      { consumer: 'c', messageId: id, key: 'k', previousSequence: 1 },
    ],
    [
      'previousSequence',
      /5 must be from 0 to below the sequence, which is 5/,
      { consumer: 'c', messageId: id, key: 'k', sequence: 5, previousSequence: 5 },
    ],
    [
      'previousSequence',
      /-1 must be a whole number from 0/,
      { consumer: 'c', messageId: id, key: 'k', sequence: 5, previousSequence: -1 },
    ],
    [
      'sequnce',
      /is not known here: use consumer, onGap/,
      { consumer: 'c', messageId: id, sequnce: 5 },
    ],
    [
      'key',
      /is not known here: use consumer, onGap, message/,
      { consumer: 'c', message: { id }, key: 'k' },
    ],
    [
      'onGap',
      /"stop" is unknown: give report or throw/,
      { consumer: 'c', messageId: id, onGap: 'stop' },
    ],
  ])('M11 a wrong %s is refused: %s', (field, problem, received) => {
    let refusal: unknown;
    try {
      parsed(received);
    } catch (error) {
      refusal = error;
    }
    expect(refusal).toMatchObject({ code: 'message_refused', field });
    expect(String(refusal)).toMatch(problem);
  });

  it('M11 anything but a list of objects is refused', () => {
    expect(() => serializeList('no' as unknown as ReceivedMessage[])).toThrow(
      /messages "no" is not a list/,
    );
    expect(() => checkConsumer('billing' as never)).toThrow(/"billing" is not an object/);
    expect(() => checkReceived(null as never)).toThrow(/null is not an object/);
  });
});
