// The log of the command line: repeated warnings are counted instead of logged, and long fields are cut.

import { spawnSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { EventLog } from '../../src/cli/log.js';
import { troubleOf } from '../../src/telemetry/events.js';
import type { RelayEvent } from '../../src/telemetry/events.js';

type Line = Record<string, unknown> & { msg: string };

function openLog(level: 'info' | 'debug' = 'info') {
  const texts: string[] = [];
  const lines: Line[] = [];
  const write = (text: string): void => {
    texts.push(text);
    lines.push(JSON.parse(text) as Line);
  };
  return { log: new EventLog(level, { write }), lines, texts };
}

const refused = () =>
  Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:5432'), { code: 'ECONNREFUSED' });

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('P14 an outage is one line a second, each with the number of events it stands for', () => {
  const { log, lines } = openLog();
  for (let ms = 0; ms < 2500; ms += 10) {
    log.write(troubleOf(`claim for destination-${ms % 100}`, refused()));
    vi.advanceTimersByTime(10);
  }
  expect(lines.map(({ msg, code, times }) => ({ msg, code, times }))).toEqual([
    { msg: 'trouble', code: 'ECONNREFUSED', times: undefined },
    { msg: 'trouble', code: 'ECONNREFUSED', times: 99 },
    { msg: 'trouble', code: 'ECONNREFUSED', times: 100 },
  ]);
  // the last line of the burst gives the number since then, and then the log is quiet
  vi.advanceTimersByTime(60_000);
  expect(lines.slice(3).map(({ times }) => times)).toEqual([50]);
  expect(lines.reduce((sum, { times = 1 }) => sum + Number(times), 0)).toBe(250);
});

test('P14 events that were held back are logged at the end of the process', () => {
  const { log, lines } = openLog();
  log.write(troubleOf('settle', refused()));
  log.write(troubleOf('settle', refused()));
  log.flush();
  log.flush();
  expect(lines.map(({ times }) => times)).toEqual([undefined, 1]);
});

const untold = (alert: string, code: string): RelayEvent => ({
  name: 'alert_untold',
  alert,
  state: 'firing',
  outcome: { kind: 'retry', code },
});
const paused = (code: string): RelayEvent => ({
  name: 'destination_paused',
  destination: 'crm',
  failure: { code },
});

test.each<[string, RelayEvent, RelayEvent]>([
  [
    'with another code',
    troubleOf('settle', refused()),
    troubleOf('settle', Object.assign(new Error('shutting down'), { code: '57P01' })),
  ],
  [
    'with another text, without a code',
    troubleOf('settle', new Error('one')),
    troubleOf('settle', new Error('two')),
  ],
  [
    'for another reason',
    { name: 'replica_unused', reason: 'it is behind' },
    { name: 'replica_unused', reason: 'it is gone' },
  ],
  [
    'of another kind of endpoints',
    { name: 'endpoints_waiting', problem: 'no key' },
    { name: 'endpoints_waiting', problem: 'another key' },
  ],
  ['with another outcome', untold('waiting', 'timeout'), untold('waiting', 'http_status')],
  ['with another failure', paused('http_status'), paused('timeout')],
  [
    'of another destination',
    { name: 'destination_hung', destination: 'crm', overdue: 10 },
    { name: 'destination_hung', destination: 'billing', overdue: 10 },
  ],
  [
    'of another cursor',
    { name: 'stream_lost', cursor: 'search', partition: 0 },
    { name: 'stream_lost', cursor: 'audit', partition: 0 },
  ],
  ['of another alert', untold('waiting', 'timeout'), untold('unrouted', 'timeout')],
  [
    'of another name',
    { name: 'listen_unavailable', reason: 'a pooler' },
    { name: 'replica_unused', reason: 'a pooler' },
  ],
])('P14 a problem %s has a line of its own', (_, one, another) => {
  const { log, lines } = openLog();
  for (const event of [one, another, one, another]) log.write(event);
  expect(lines).toHaveLength(2);
});

test('P14 each shard has its own lines', () => {
  const { log, lines } = openLog();
  log.write(troubleOf('settle', refused()));
  log.write(troubleOf('settle', refused()), 'eu');
  expect(lines).toHaveLength(2);
});

test('P14 routine events are not held back', () => {
  const { log, lines } = openLog('debug');
  for (let n = 0; n < 3; n += 1) log.write({ name: 'woken', by: 'notification' });
  for (let n = 0; n < 3; n += 1) log.write({ name: 'zombies_requeued', count: 1 });
  expect(lines).toHaveLength(6);
});

test('P14 long lists and texts are cut, with their full length', () => {
  const { log, lines } = openLog();
  const messageIds = Array.from({ length: 300 }, (_, n) => `id-${n}`);
  log.write({
    name: 'lease_lost',
    destination: 'crm',
    leaseId: 'l',
    messageIds,
    noticedBy: 'settle',
  });
  log.write(troubleOf('settle', new Error('x'.repeat(12_000))));
  const [lost, trouble] = lines;
  expect(lost).toMatchObject({ messageIds: messageIds.slice(0, 10), messageIdsTotal: 300 });
  expect(trouble?.['error']).toBe(`${'x'.repeat(500)}… (12000 characters)`);
});

test('P14 fields are cut within an outcome, in routine events, and in lines that summarize several events', () => {
  const { log, lines } = openLog('debug');
  const long = 'x'.repeat(12_000);
  const cut = `${'x'.repeat(500)}… (12000 characters)`;
  const outcome = { kind: 'reject', code: 'http_status', response: long } as const;
  log.write({ name: 'delivery_failed', destination: 'crm', messageId: 'm', tries: 1, outcome });
  log.write(troubleOf('settle', refused()));
  log.write(troubleOf(long, refused()));
  log.flush();
  expect(lines).toMatchObject([
    { msg: 'delivery_failed', outcome: { response: cut } },
    { msg: 'trouble' },
    { msg: 'trouble', what: cut, times: 1 },
  ]);
});

test('P13 characters that change the direction of text are escaped', () => {
  const { log, texts } = openLog();
  log.write(troubleOf('settle', new Error('a\u202Eb')));
  expect(texts.join('')).toContain(String.raw`a\u202eb`);
});

test('P14 the log keeps no process alive, and its end logs what was held back', () => {
  const script = `
    import { openLog } from ${JSON.stringify(pathToFileURL('dist/cli/log.js').href)};
    const log = openLog('info');
    for (const code of ['one', 'one', 'two']) log.write({ name: 'trouble', what: 'x', code, error: code });
    // the event loop is empty
    process.once('beforeExit', () => process.stderr.write(JSON.stringify({ code: 'idle' }) + '\\n'));`;
  const { stderr, status } = spawnSync(
    process.execPath,
    ['--input-type=module', '--eval', script],
    { encoding: 'utf8' },
  );
  expect(status, stderr).toBe(0);
  const lines = stderr.trim().split('\n');
  expect(lines.map((line) => JSON.parse(line) as Line)).toMatchObject([
    { code: 'one' },
    { code: 'two' },
    { code: 'idle' },
    { code: 'one', times: 1 },
  ]);
});
