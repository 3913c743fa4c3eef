// xmin: the drain while another session holds an old snapshot, as a long report or a backup does, so vacuum cannot
// remove deleted rows. Compared with the same drain without such a snapshot.

import { contenders } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { drainOnce } from './drain.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median } from './harness/rounds.js';
import { connect } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';

export const xmin: Bench = async (server, options) => {
  const messages = options.messages ?? (options.tiny ? 500 : 400_000);
  const names = contenders(options);
  const turns = names.flatMap((name) => [`${name} free`, `${name} held`]);
  const rates = await interleave(options.rounds, turns, async (turn, round) => {
    const [name, snapshot] = turn.split(' ') as [(typeof names)[number], 'free' | 'held'];
    const database = await server.createDatabase(`xmin ${turn}`);
    let release = async (): Promise<void> => {};
    try {
      const { perSecond } = await drainOnce(name, database, {
        messages,
        beforeDrain: async () => {
          if (snapshot === 'held') release = await holdSnapshot(database);
        },
      });
      progress(`round ${round + 1}: ${turn} ${shown(perSecond)}/s`);
      return perSecond;
    } finally {
      await release();
      await database.drop();
    }
  });

  const rate = (turn: string): number => median(rates[turn] ?? []);
  const ratioOf = (name: string): number => rate(`${name} held`) / rate(`${name} free`);
  printSettings('Xmin', { messages, payloadBytes: 500, rounds: options.rounds });
  printTable(
    ['contender', 'no snapshot held/s', 'snapshot held/s', 'ratio'],
    names.map((name) => [name, rate(`${name} free`), rate(`${name} held`), ratioOf(name)]),
  );
  const peers = names.filter((name) => name !== 'waybill');
  const held = rate('waybill held');
  return {
    waybill: held,
    peers: Object.fromEntries(peers.map((name) => [name, rate(`${name} held`)])),
    limit: rate('waybill free'),
    ratioToBestPeer:
      peers.length === 0 ? null : held / Math.max(...peers.map((name) => rate(`${name} held`))),
    ratioToLimit: ratioOf('waybill'),
    ratio: ratioOf('waybill'),
    ratios: Object.fromEntries(names.map((name) => [name, ratioOf(name)])),
    messages,
    aims: [{ what: 'held / not held', atLeast: 0.95, actual: ratioOf('waybill') }],
  };
};

/** Another session holds a snapshot, and a transaction id, until the returned function is called. */
export async function holdSnapshot({ url }: BenchDatabase): Promise<() => Promise<void>> {
  const client = await connect(url);
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()');
  return async () => {
    await client.end();
  };
}
