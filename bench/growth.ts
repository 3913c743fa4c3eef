// growth: whether claims take longer when the table is large. Measures claims of a hundred messages, as a relay
// makes them, with a backlog of 10 thousand and of 5 million, and an archive of none and of 5 million delivered
// messages. The four databases are claimed in turn. Each claim is settled and its messages are replaced.

import { randomUUID } from 'node:crypto';

import { claimBatch, settle } from '../src/database/claims.js';
import { Database, resolveDatabaseOptions } from '../src/database/connection.js';
import { delivered } from '../src/core/outcome.js';
import { createOutbox } from '../src/producer/outbox.js';
import { contenderModule } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { relayUrl, runToEnd } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { percentile } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';

const limit = 100;
const payloadBytes = 100;
const claimsPerRound = 100;
const relayId = randomUUID();

type Case = {
  backlog: number;
  archive: number;
  database: BenchDatabase;
  relay: Database;
  ms: number[];
};

export const growth: Bench = async (server, options) => {
  const small = options.tiny ? 300 : 10_000;
  const large = options.messages ?? (options.tiny ? 2000 : 5_000_000);
  const sizes = [small, large].flatMap((backlog) =>
    [0, large].map((archive) => ({ backlog, archive })),
  );
  const cases: Case[] = [];
  try {
    for (const { backlog, archive } of sizes) {
      progress(`preparing a backlog of ${shown(backlog)} and an archive of ${shown(archive)} …`);
      cases.push(await prepare(server, backlog, archive));
    }
    const claims = options.tiny ? 3 : claimsPerRound * options.rounds;
    for (let turn = -1; turn < claims; turn += 1) {
      for (const one of cases) {
        const ms = await claimAndReplace(one);
        // the first claim opens the connection
        if (turn >= 0) one.ms.push(ms);
      }
    }
    return report(cases, claims);
  } finally {
    for (const { relay, database } of cases) {
      await relay.close();
      await database.drop();
    }
  }
};

async function prepare(server: BenchServer, backlog: number, archive: number): Promise<Case> {
  const database = await server.createDatabase('growth');
  const { client, url } = database;
  const load = async (count: number): Promise<void> => {
    await runToEnd(
      'bench/processes/prepare.mjs',
      [contenderModule.waybill, String(count), String(payloadBytes)],
      { DATABASE_URL: url },
    );
  };
  await load(archive);
  if (archive > 0) {
    // as if a relay had delivered them, but faster
    await client.query(`DELETE FROM outbox.deliveries;
      INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at, latency_ms)
      SELECT m.id, d.id, 1, 1, 'dispatched', '${relayId}', m.created_at, m.created_at, 1
        FROM outbox.messages m, outbox.destinations d`);
  }
  await load(backlog);
  await client.query('VACUUM ANALYZE');
  await client.query('CHECKPOINT');
  const relay = new Database(resolveDatabaseOptions({ url: relayUrl(url) }), {
    connections: 1,
    applicationName: 'waybill bench',
  });
  return { backlog, archive, database, relay, ms: [] };
}

async function claimAndReplace({ relay, database: { client } }: Case): Promise<number> {
  const leaseId = randomUUID();
  const destinationId = await ask<number>(client, 'SELECT id AS answer FROM outbox.destinations');
  const startedMs = performance.now();
  const messages = await claimBatch(relay, {
    destinationId,
    leaseId,
    relayId,
    limit,
    maxBytes: 8 * 1024 * 1024,
    leaseMs: 30_000,
    tenantIds: null,
    namespace: null,
    scanStart: null,
    lanesFirst: false,
    afterTenant: null,
    afterLaneTenant: null,
  });
  const tookMs = performance.now() - startedMs;
  if (messages.length !== limit) throw new Error(`a claim took ${messages.length} of ${limit}`);
  const outcome = delivered();
  const endings = messages.map((message) => ({ message, outcome, latencyMs: 1 }));
  await settle(relay, relayId, { leaseId, destinationId, endings });
  await createOutbox().enqueueMany(
    client,
    messages.map(({ topic, payload }) => ({ topic, payload })),
    { autonomous: true },
  );
  return tookMs;
}

function report(cases: readonly Case[], claims: number) {
  const [smallest] = cases;
  const figure = (one: Case | undefined) => ({
    p50: percentile(one?.ms ?? [], 50),
    p95: percentile(one?.ms ?? [], 95),
  });
  const base = figure(smallest);
  printSettings('Growth', { limit, payloadBytes, claims });
  printTable(
    ['backlog', 'archive', 'claim p50, ms', 'p95, ms', 'p50 ratio', 'p95 ratio'],
    cases.map((one) => {
      const { p50, p95 } = figure(one);
      return [shown(one.backlog), shown(one.archive), p50, p95, p50 / base.p50, p95 / base.p95];
    }),
  );
  const worst = (pick: (f: { p50: number; p95: number }) => number): number =>
    Math.max(...cases.slice(1).map((one) => pick(figure(one)) / pick(base)));
  return {
    waybill: cases.map((one) => ({ backlog: one.backlog, archive: one.archive, ...figure(one) })),
    peers: {},
    limit: null,
    ratioToBestPeer: null,
    ratioToLimit: null,
    p50Ratio: worst((f) => f.p50),
    p95Ratio: worst((f) => f.p95),
    aims: [
      { what: 'claim p50, largest / smallest', atMost: 1.3, actual: worst((f) => f.p50) },
      { what: 'claim p95, largest / smallest', atMost: 1.3, actual: worst((f) => f.p95) },
      {
        what: 'claim p95, ms',
        atMost: 10,
        actual: Math.max(...cases.map((one) => figure(one).p95)),
      },
    ],
  };
}
