// The answer of a guard: only a clear yes sends the message.

import { setImmediate as nextTurn } from 'node:timers/promises';

import * as v from 'valibot';
import { describe, expect, it } from 'vitest';

import { guardKind, guardLimitMs, judge } from '../../src/core/guard.js';
import type { Guard } from '../../src/core/guard.js';
import type { StandardSchema } from '../../src/core/standard-schema.js';
import { judgeAll } from '../../src/destinations/guard.js';
import { handler } from '../../src/destinations/handler.js';
import { claimedMessage } from '../support/claimed-message.js';

const message = claimedMessage({ payload: '{"amount": "12", "user": {"name": 7}}' });
const judged = (guard: unknown, limitMs = 1000) => judge(guard as Guard, message, limitMs);

describe('a guard of a batch', () => {
  it('P8 checks in several turns of the event loop if it takes long', async () => {
    const turns = { now: 0, working: true };
    const counting = (async () => {
      for (; turns.working; turns.now += 1) await nextTurn();
    })();
    const seen: number[] = [];
    const guard = () => {
      seen.push(turns.now);
      const startedMs = performance.now();
      while (performance.now() - startedMs < 12);
    };
    const destination = handler(() => {}, { guard });
    expect(
      await judgeAll(
        destination,
        Array.from({ length: 5 }, () => message),
      ),
    ).toHaveLength(5);
    turns.working = false;
    await counting;
    expect(new Set(seen).size).toBe(5);
  });
});

describe('a guard that is a function', () => {
  it('P8 a guard that returns nothing, at once or later, allows the delivery', async () => {
    expect(judged(() => undefined)).toBeUndefined();
    expect(await judged(() => Promise.resolve(undefined))).toBeUndefined();
  });

  it('P8 a guard that returns a code refuses the delivery for good', async () => {
    const refused = {
      kind: 'reject',
      code: 'guard_refused',
      remoteCode: 'too_much',
      message: 'over 10',
    };
    const answer = { code: 'too_much', message: 'over 10' };
    expect(judged(() => answer)).toEqual(refused);
    expect(await judged(() => Promise.resolve(answer))).toEqual(refused);
  });

  it.each<[string, () => unknown]>([
    [
      'a throw',
      () => {
        throw new Error('broken');
      },
    ],
    ['a rejection', () => Promise.reject(new Error('broken'))],
    ['false', () => false],
    ['true', () => true],
    ['null', () => null],
    ['a text', () => 'no'],
    ['a number as code', () => ({ code: 7 })],
    ['an empty code', () => Promise.resolve({ code: '' })],
  ])('P8 %s is not a yes: the message is retried, not sent', async (_what, guard) => {
    expect(await judged(guard)).toMatchObject({ kind: 'retry', code: 'guard_failed' });
  });

  it('P8 a guard that does not answer in time does not allow the delivery', async () => {
    expect(await judged(() => new Promise(() => {}), 5)).toEqual({
      kind: 'retry',
      code: 'guard_failed',
      message: 'the guard gave no answer within 5 ms',
    });
  });

  it('has half of the time of a delivery, and ten seconds at most', () => {
    expect([guardLimitMs(30_000), guardLimitMs(1000), guardLimitMs(1)]).toEqual([10_000, 500, 1]);
  });
});

describe('a guard that is a Standard Schema', () => {
  const schema = v.object({ amount: v.string(), user: v.object({ name: v.string() }) });

  it('P8 refuses an invalid payload, with the problem and its path', () => {
    expect(judged(schema)).toMatchObject({
      kind: 'reject',
      code: 'guard_refused',
      remoteCode: 'schema_invalid',
      message: expect.stringMatching(/^user\.name: .*string/) as string,
    });
    expect(judged(v.object({ amount: v.string() }))).toBeUndefined();
  });

  it('P8 may answer asynchronously', async () => {
    const slow = v.pipeAsync(
      v.object({ amount: v.string() }),
      v.checkAsync(async () => Promise.resolve(false), 'not today'),
    );
    expect(await judged(slow)).toMatchObject({ kind: 'reject', message: 'not today' });
  });

  it('P8 may be a function, as in some libraries', () => {
    const made = Object.assign(() => undefined, {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: () => ({ issues: [{ message: 'no' }] }),
      },
    });
    expect(judged(made)).toMatchObject({ kind: 'reject', message: 'no' });
  });

  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['a text', 'fine'],
    ['issues that are not a list', { issues: 'bad' }],
  ])('P8 an answer of %s is not a yes', (_what, answer) => {
    const schemaOf: StandardSchema = {
      '~standard': { version: 1, vendor: 'test', validate: () => answer as object },
    };
    expect(judged(schemaOf)).toMatchObject({ kind: 'retry', code: 'guard_failed' });
  });

  it('shows ten issues at most', () => {
    const issues = Array.from({ length: 30 }, (_, n) => ({ message: `m${n}`, path: [{ key: n }] }));
    const schemaOf = { '~standard': { version: 1, vendor: 'test', validate: () => ({ issues }) } };
    expect(judged(schemaOf)).toMatchObject({
      message: expect.stringMatching(/^0: m0; 1: m1; .*9: m9; and 20 more$/) as string,
    });
  });
});

it.each([[{}], ['x'], [17], [null]])('%j is not a guard', (value) => {
  expect(() => guardKind('guard', value)).toThrow(/^guard is .*: give a function/);
});
