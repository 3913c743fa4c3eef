// The judge of the crash proof, given evidence with one thing wrong at a time: an invariant that cannot fail would
// prove nothing.

import { expect, test } from 'vitest';

import type { Attempt, Evidence } from './crash/evidence.js';
import { judge } from './crash/invariants.js';
import type { Produced } from './crash/producers.js';
import type { RelayRecord } from './crash/relay-slot.js';
import type { Reception } from './crash/sink.js';

const id = '01900000-0000-7000-8000-000000000001';
const destination = 'ledger';
const relayId = '00000000-0000-4000-8000-00000000000a';

function produced(changes: Partial<Produced> = {}): Produced {
  return {
    outcome: 'ok',
    transaction: 't-1',
    id,
    topic: 'ledger.posted',
    bodyHash: 'h',
    ...changes,
  };
}

function received(changes: Partial<Reception> = {}): Reception {
  return {
    answer: 'accept',
    destination,
    id,
    claimNo: 1,
    relay: 'relay-a-1',
    bodyHash: 'h',
    ...changes,
  };
}

function attempt(changes: Partial<Attempt> = {}): Attempt {
  return {
    id,
    destination,
    claimNo: 1,
    tries: 1,
    state: 'dispatched',
    relayId,
    errorCode: null,
    ...changes,
  };
}

const zombie = attempt({ state: 'zombie_requeue', errorCode: 'zombie' });

function relay(changes: Partial<RelayRecord> = {}): RelayRecord {
  return {
    name: 'relay-a-1',
    id: relayId,
    end: 'stopped',
    ending: { code: 0, signal: null },
    stopMs: 10,
    settled: 1,
    settledReleases: 0,
    lost: 0,
    reaped: 0,
    troubles: 0,
    lastWords: '',
    ...changes,
  };
}

/** One message, delivered at the first try, with nothing wrong. */
function evidence(changes: Partial<Evidence> = {}): Evidence {
  return {
    produced: [produced()],
    received: [received()],
    messageIds: new Set([id]),
    attempts: [attempt()],
    places: [{ id, destination, place: 'dispatched' }],
    deadLetters: [],
    replayed: 0,
    health: { waiting: 0, processing: 0, unrouted: 0, dead: 0 },
    relays: [relay()],
    faults: {
      kills: [],
      uncountedKills: 0,
      lateSettles: [],
      databaseCrashes: [],
      silences: [],
      connectionsCut: 0,
      commitsCut: 0,
    },
    mostInFlight: 10,
    stopDeadlineMs: 5000,
    quietMs: 1,
    mostOverdueMs: 0,
    connectionsLeft: 0,
    ...changes,
  };
}

function objections(changes: Partial<Evidence>): string[] {
  return judge(evidence(changes)).flatMap(({ invariant, wrong }) =>
    wrong.length > 0 ? [invariant.split(' ')[0] ?? ''] : [],
  );
}

test('evidence without a mistake passes', () => {
  expect(objections({})).toEqual([]);
});

const { faults } = evidence();
const dead = { id, destination, claimNo: 1 };
const lateSettle = { relay: 'relay-a-1', leaseId: 'l', destination, ids: [id], claimNos: [1] };

test.each<[invariant: string, what: string, changes: Partial<Evidence>]>([
  ['I1', 'a committed message is gone', { messageIds: new Set() }],
  ['I1', 'a committed message is in no table', { places: [] }],
  [
    'I1',
    'a committed message is still pending',
    { places: [{ id, destination, place: 'waiting' }] },
  ],
  [
    'I1',
    'a message is delivered and dead',
    { places: ['dispatched', 'dead'].map((place) => ({ id, destination, place }) as never) },
  ],
  ['I1', 'the sink never accepted what is recorded as delivered', { received: [] }],
  [
    'I1',
    'the sink refused what is recorded as delivered',
    { received: [received({ answer: 'retry' })] },
  ],
  [
    'I1',
    'a transaction was committed in part',
    { produced: [produced({ outcome: 'unknown' }), produced({ outcome: 'unknown', id: 'other' })] },
  ],
  ['I2', 'a rolled back message was delivered', { produced: [produced({ outcome: 'aborted' })] }],
  ['I2', 'a message was never enqueued', { received: [received(), received({ id: 'other' })] }],
  ['I4', 'a body was changed', { received: [received({ bodyHash: 'other' })] }],
  ['I4', 'a claim was sent twice', { received: [received(), received()] }],
  [
    'I4',
    'a released claim was sent',
    { attempts: [attempt({ state: 'released', tries: 0 }), attempt({ claimNo: 2 })] },
  ],
  [
    'I4',
    'there are more duplicates than victims could have in flight',
    {
      attempts: [zombie, attempt({ claimNo: 2, tries: 2 })],
      received: [received(), received({ claimNo: 2 })],
    },
  ],
  ['I5', 'a lease is left', { places: [{ id, destination, place: 'leased' }] }],
  ['I5', 'a lease was overdue for long', { mostOverdueMs: 60_000 }],
  ['I6', 'a claim number is missing', { attempts: [attempt({ claimNo: 2 })] }],
  [
    'I6',
    'a delivered message was claimed again',
    { attempts: [attempt(), attempt({ claimNo: 2, tries: 2 })] },
  ],
  [
    'I6',
    'a release cost a try',
    { attempts: [attempt({ state: 'released' }), attempt({ claimNo: 2, tries: 2 })] },
  ],
  [
    'I6',
    'a dead letter was sent again without a replay',
    { attempts: [attempt({ state: 'failed' }), attempt({ claimNo: 2 })] },
  ],
  ['I6', 'a dead letter has another ending', { deadLetters: [dead] }],
  ['I6', 'a requeued message is not pending', { attempts: [zombie], places: [] }],
  ['I7', 'a late settle became the ending', { faults: { ...faults, lateSettles: [lateSettle] } }],
  ['I8', 'the work never ended', { quietMs: null }],
  [
    'I8',
    'a half-open relay waited for a second deadline',
    { faults: { ...faults, silences: [{ relay: 'relay-a-1', resumedMs: 14_000 }] } },
  ],
  ['I9', 'a relay settled more than is recorded', { relays: [relay({ settled: 2 })] }],
  ['I9', 'a relay settled less than is recorded', { relays: [relay({ settled: 0 })] }],
  ['I9', 'a relay reaped what is not recorded', { relays: [relay({ reaped: 1 })] }],
  ['I9', 'health counts a dead letter too many', { health: { ...evidence().health, dead: 1 } }],
  ['I10', 'a connection is left', { connectionsLeft: 1 }],
  [
    'I10',
    'a relay died by itself',
    { relays: [relay({ end: 'died', ending: { code: 1, signal: null } })] },
  ],
  [
    'I10',
    'a relay had to be killed',
    { relays: [relay({ ending: { code: null, signal: 'SIGKILL' } })] },
  ],
  ['I10', 'a relay took too long to stop', { relays: [relay({ stopMs: 8000 })] }],
])('%s fails when %s', (invariant, _what, changes) => {
  expect(objections(changes)).toContain(invariant);
});

test('a kill allows as many duplicates as were in flight', () => {
  const attempts = [zombie, attempt({ claimNo: 2, tries: 2 })];
  const kills = [{ phase: 'settle' as const, relay: 'relay-b-1', messages: 1 }];
  expect(
    objections({
      attempts,
      received: [received(), received({ claimNo: 2 })],
      faults: { ...faults, kills },
    }),
  ).toEqual([]);
});
