// Secret redaction in stored responses: no secret survives in any escaped form of JSON, URLs, forms, HTML or PHP, and the
// work is linear and bounded, whatever a receiver answers.

import { property, assert, constantFrom, array, integer, string, tuple } from 'fast-check';
import { describe, expect, it } from 'vitest';

import { Automaton } from '../../src/destinations/webhook/automaton.js';
import { keptBytes, responseKeeper } from '../../src/destinations/webhook/kept-response.js';

const origin = 'https://receiver.example';

/** The stored text of a complete response. */
function kept(
  body: string,
  { headers = {}, url = '/' }: { headers?: Record<string, string>; url?: string } = {},
): string {
  const keeper = responseKeeper([], headers, new URL(url, origin));
  return keeper.textOf(Buffer.from(body), true);
}

describe('parts of what is sent', () => {
  it.each<[string, Record<string, string>, string]>([
    ['a cookie value', { cookie: 'session=geheim-1; theme="dunkel-2"' }, 'geheim-1'],
    ['a quoted cookie value', { Cookie: 'session=geheim-1; theme="dunkel-2"' }, 'dunkel-2'],
    ['a short cookie value', { cookie: 'a=b; pin=4711' }, '4711'],
    ['quoted text', { authorization: 'Token token="geheim",user="bob"' }, 'geheim'],
    ['quoted text with escapes', { 'x-key': String.raw`key="ge\"heim"` }, 'ge"heim'],
    ['text in single quotes', { 'x-key': `key='geheim'` }, 'geheim'],
    ['a named value', { 'x-key': 'id=7,key=geheim==wort' }, 'geheim==wort'],
    ['a value behind a colon', { 'x-key': 'ApiKey kunde:geheimes' }, 'geheimes'],
    ['a value of a form', { 'x-key': 'a=1&key=geheimes' }, 'geheimes'],
    ['a header with a space, as a form', { 'x-key': 'ganz geheim' }, 'ganz+geheim'],
    ['a header with a plus sign', { 'x-key': 'ganz+geheim' }, 'ganz+geheim'],
    ['a header with a plus sign, encoded', { 'x-key': 'ganz+geheim' }, 'ganz%2bgeheim'],
  ])('W3 of a header are not kept: %s', (_what, headers, secret) => {
    expect(kept(`before ${secret} after`, { headers })).toBe('before [redacted] after');
  });

  it.each([
    ['a parameter without a value', '/?geheimes-wort', 'geheimes-wort'],
    ['a parameter with an empty value', '/?geheimes-wort=&a=b', 'geheimes-wort'],
    ['a raw plus sign', '/?key=geheimes+wort', 'geheimes+wort'],
    ['a raw plus sign, decoded as a form', '/?key=geheimes+wort', 'geheimes wort'],
    ['a raw plus sign, encoded', '/?key=geheimes+wort', 'geheimes%2Bwort'],
    ['a raw plus sign in the path', '/geheimes+wort', 'geheimes+wort'],
    ['an encoded value unchanged', '/?key=geheimes%2bwort', 'geheimes%2Bwort'],
    ['an encoded value, decoded', '/?key=geheimes%2bwort', 'geheimes+wort'],
    ['a part of a path segment', '/bot1234:geheimes-wort/send', 'geheimes-wort'],
  ])('W3 of an address are not kept: %s', (_what, url, secret) => {
    expect(kept(`before ${secret} after`, { url })).toBe('before [redacted] after');
  });

  it('W3 a signing secret is not kept without padding or in the base64 of URLs', () => {
    const key = Buffer.from('ûÿþ~~??>>>>>>>>>>>>>>>>>>>', 'latin1');
    const keeper = responseKeeper([`whsec_${key.toString('base64')}`], {}, new URL(origin));
    for (const spelling of ['base64', 'base64url'] as const)
      expect(keeper.textOf(Buffer.from(`<${key.toString(spelling)}>`), true)).toBe('<[redacted]>');
  });
});

it.each([
  ['percent-encoded twice', '%2547eheimes%2520Wort'],
  ['percent-encoded three times', '%252547eheimes%252520Wort'],
  ['in JSON, percent-encoded', '%5Cu0047eheimes%20Wort'],
  ['percent-encoded, in JSON', '\\u00254\\u0037eheimes\\u002520Wort'],
  ['in HTML twice', '&amp;#71;eheimes&amp;#32;Wort'],
])('W3 a secret that is %s is not kept', (_how, spelt) => {
  expect(kept(`<${spelt}>`, { headers: { 'x-key': 'Geheimes Wort' } })).toBe('<[redacted]>');
});

const spellings: ((text: string) => string)[] = [
  (text) => text,
  (text) => text.replaceAll(/[a-z]/g, (letter) => letter.toUpperCase()),
  (text) => text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase()),
  (text) => encodeURIComponent(text),
  (text) => encodeURIComponent(text).toLowerCase(),
  (text) => new URLSearchParams([['', text]]).toString().slice(1),
  (text) => JSON.stringify(text).slice(1, -1),
  (text) => JSON.stringify(JSON.stringify(text)).slice(3, -3),
  (text) => JSON.stringify(text).slice(1, -1).replaceAll('/', '\\/'),
  (text) =>
    text
      .split('')
      .map((c) => `\\u${hex(c, 4)}`)
      .join(''),
  (text) =>
    text
      .split('')
      .map((c) => `&#x${hex(c, 1)};`)
      .join(''),
  (text) =>
    text
      .split('')
      .map((c) => `&#${c.charCodeAt(0)};`)
      .join(''),
  (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;'),
];

function hex(character: string, digits: number): string {
  return character.charCodeAt(0).toString(16).padStart(digits, '0');
}

describe('in general', () => {
  // letters that neither the filler nor the mask contains
  const secret = string({
    unit: constantFrom(...'GHJKLMQ0123456789_-.~!*()/:"&<é%\\+ '.split('')),
    minLength: 8,
    maxLength: 60,
  }).map((text) => `G${text}G`);
  const filler = string({ unit: constantFrom(...' \n\\%&#;{}"zyx'.split('')), maxLength: 30 });
  // once, or one escaped form inside another: percent-encoding of JSON, JSON in JSON, and so on
  const spelling = array(constantFrom(...spellings), { minLength: 1, maxLength: 2 }).map(
    (inTurn) => (text: string) => inTurn.reduce((spelt, spell) => spell(spelt), text),
  );

  it('W3 no secret survives in any escaped form, wherever it is and whatever surrounds it', () => {
    assert(
      property(
        array(secret, { minLength: 1, maxLength: 5 }),
        array(tuple(filler, spelling, integer({ min: 0, max: 4 }))),
        (secrets, echoes) => {
          const headers = Object.fromEntries(secrets.map((text, at) => [`x-${at}`, text]));
          const body = echoes
            .map(([before, spell, at]) => `${before}z${spell(secrets[at % secrets.length] ?? '')}z`)
            .join('');
          const text = kept(body, { headers });
          if (body.length > keptBytes) return;
          expect(text.replaceAll('[redacted]', '')).not.toMatch(/[GHJKLMQghjklmq]|\\u00|&#x?\d/);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('W3 not even the beginning of a secret survives at the end of the kept part or of the response', () => {
    assert(
      property(
        secret,
        spelling,
        integer({ min: 0, max: 200 }),
        integer({ min: 0, max: 2000 }),
        (text, spell, back, more) => {
          const keeper = responseKeeper([], { 'x-key': text }, new URL(origin));
          const body = `${'z'.repeat(keptBytes - back)}${spell(text)}${'z'.repeat(more)}`;
          const answer = Buffer.from(body);
          const isWhole = answer.length <= keeper.neededBytes;
          const first = keeper.textOf(answer.subarray(0, keeper.neededBytes), isWhole);
          expect(first).toMatch(/^z+(\[redacted\])?z*$/);
          // the connection broke in the middle of the secret
          const broken = Buffer.from(
            body.slice(0, keptBytes - back + Math.ceil(spell(text).length / 2)),
          );
          const rest = keeper.textOf(broken.subarray(0, keeper.neededBytes), false);
          expect(rest).toMatch(/^z+(\[redacted\])?$/);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('W3 a response without secrets is kept unchanged, even if it ends like the beginning of one', () => {
    const headers = { 'x-key': 'geheimes Wort' };
    expect(kept('all is gehei', { headers })).toBe('all is gehei');
    const body = `${'z'.repeat(keptBytes - 1)}g${'z'.repeat(2000)}`;
    const keeper = responseKeeper([], headers, new URL(origin));
    const answer = Buffer.from(body).subarray(0, keeper.neededBytes);
    expect(keeper.textOf(answer, false)).toBe(body.slice(0, keptBytes));
  });
});

describe('the work', () => {
  // the worst case for a search for one text after the other
  const headers = Object.fromEntries(
    Array.from({ length: 20 }, (_, at) => [
      `x-${at}`,
      `${'a'.repeat(500 + at)}b${'a'.repeat(6000)}`,
    ]),
  );

  it('W3 is the same for every length of a response, because only a bounded part is searched', () => {
    const url = new URL(`/${'a'.repeat(1900)}b`, origin);
    expect(responseKeeper([], headers, url).neededBytes).toBeLessThanOrEqual(keptBytes + 1024);
  });

  it('W3 stays small for 20 long headers and a response of 131,000 × a', () => {
    const keeper = responseKeeper([], headers, new URL(`/${'a'.repeat(1900)}b`, origin));
    const answer = Buffer.alloc(131_000, 'a').subarray(0, keeper.neededBytes);
    keeper.textOf(answer, false);
    expect(fastestMs(() => keeper.textOf(answer, false))).toBeLessThan(
      50 * slownessOfThisMachine(),
    );
  });

  it('W3 stays small for a header of quotes that are opened and never closed', () => {
    const open = (length: number) => () =>
      responseKeeper([], { 'x-a': '"\\'.repeat(length) }, new URL(origin));
    // quadratic work would take 16 times as long
    expect(fastestMs(open(4000))).toBeLessThan(10 * fastestMs(open(1000)) + 1);
  });

  it('W3 grows with the text, not with the number of texts that begin alike', () => {
    const few = new Automaton([`${'a'.repeat(400)}b`]);
    const many = new Automaton(Array.from({ length: 400 }, (_, at) => `${'a'.repeat(at)}b`));
    const text = 'a'.repeat(100_000);
    const walk = (automaton: Automaton, characters: string) => () => {
      let node = 0;
      for (let at = 0; at < characters.length; at += 1)
        node = automaton.step(node, characters.charCodeAt(at));
      return node;
    };
    const once = fastestMs(walk(few, text));
    // quadratic work would take 16 times as long
    expect(fastestMs(walk(few, text.repeat(4)))).toBeLessThan(10 * once);
    expect(fastestMs(walk(many, text))).toBeLessThan(10 * once);
  });
});

function fastestMs(run: () => unknown): number {
  let fastest = Infinity;
  for (let round = 0; round < 7; round += 1) {
    const before = process.cpuUsage();
    run();
    const { user, system } = process.cpuUsage(before);
    fastest = Math.min(fastest, (user + system) / 1000);
  }
  return Math.max(fastest, 0.1);
}

/** 1 where a million simple steps take two milliseconds, more on slower machines. */
function slownessOfThisMachine(): number {
  let sum = 0;
  const ms = fastestMs(() => {
    for (let at = 0; at < 1_000_000; at += 1) sum = (sum * 31 + at) % 65_521;
  });
  return Math.max(1, ms / 2 + (sum === -1 ? 1 : 0));
}
