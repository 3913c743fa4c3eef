// keyed: the drain with ordering keys: many keys, one single key, and many keys beside ten times as many keys that a
// dead letter blocks. Compared with the drain without keys, and with the peers' modes that keep the order of a key.

import { contenders, ratio } from './harness/bench.js';
import type { Bench, Contender } from './harness/bench.js';
import { drainOnce } from './drain.js';
import type { DrainTask } from './drain.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';

export const keyed: Bench = async (server, options) => {
  const messages = options.messages ?? (options.tiny ? 300 : 200_000);
  const keys = options.tiny ? 30 : 10_000;
  const blockedKeys = options.tiny ? 100 : 100_000;
  const clean: DrainTask = { messages, keys, whenDead: 'block' };
  const turns: Record<string, { name: Contender; task: DrainTask; blocked?: true }> = {
    'waybill, no key': { name: 'waybill', task: { messages } },
    'waybill, many keys': { name: 'waybill', task: clean },
    'waybill, beside blocked keys': { name: 'waybill', task: clean, blocked: true },
    'waybill, one key': { name: 'waybill', task: { messages, keys: 1 } },
  };
  // the peers keep order far more slowly, so they get a part of the messages
  const peerMessages = Math.max(Math.floor(messages / 10), Math.min(messages, 300));
  for (const name of contenders(options).filter((contender) => contender !== 'waybill')) {
    turns[`${name}, many keys`] = { name, task: { messages: peerMessages, keys } };
  }

  const rates = await interleave(options.rounds, Object.keys(turns), async (turn, round) => {
    const { name, task, blocked } = turns[turn] as (typeof turns)[string];
    const database = await server.createDatabase(`keyed ${name}`);
    try {
      const beforeLoad = blocked ? { beforeLoad: () => blockKeys(database, blockedKeys) } : {};
      const { perSecond } = await drainOnce(name, database, { ...task, ...beforeLoad });
      progress(`round ${round + 1}: ${turn} ${shown(perSecond)}/s`);
      return perSecond;
    } finally {
      await database.drop();
    }
  });

  const rate = (turn: string): number => median(rates[turn] ?? []);
  printSettings('Keyed', { messages, keys, blockedKeys, peerMessages, rounds: options.rounds });
  printTable(
    ['contender', 'messages/s', 'lowest', 'highest'],
    Object.entries(rates).map(([turn, own]) => [
      turn,
      rate(turn),
      Math.min(...own),
      Math.max(...own),
    ]),
  );
  const waybill = rate('waybill, many keys');
  const peers = Object.fromEntries(
    Object.entries(turns)
      .filter(([, { name }]) => name !== 'waybill')
      .map(([turn, { name }]) => [name, rate(turn)]),
  );
  const best = Math.max(...Object.values(peers));
  const ratioToUnkeyed = waybill / rate('waybill, no key');
  const blockedRatio = rate('waybill, beside blocked keys') / waybill;
  return {
    waybill,
    peers,
    limit: rate('waybill, no key'),
    ratioToBestPeer: ratio(waybill, Object.keys(peers).length > 0 ? best : undefined),
    ratioToLimit: ratioToUnkeyed,
    ratioToUnkeyed,
    blockedRatio,
    oneKey: rate('waybill, one key'),
    messages,
    keys,
    blockedKeys,
    aims: [
      { what: 'keyed / unkeyed', atLeast: 0.6, actual: ratioToUnkeyed },
      { what: 'beside blocked keys / without them', atLeast: 0.9, actual: blockedRatio },
    ],
  };
};

/** Makes keys whose first message is a dead letter, with one message blocked behind it. */
async function blockKeys({ client }: BenchDatabase, keys: number): Promise<void> {
  const id = await ask<number>(
    client,
    "UPDATE outbox.destinations SET when_dead = 'block' WHERE name = 'sink' RETURNING id AS answer",
  );
  const enqueue = async (): Promise<void> => {
    await client.query(
      `SELECT count(e) FROM generate_series(0, $1 - 1, 1000) first, LATERAL outbox.enqueue_many((
         SELECT jsonb_agg(jsonb_build_object('topic', 'bench.message', 'payload', n, 'key', 'blocked ' || n))
           FROM generate_series(first, least(first + 1000, $1) - 1) n)) e`,
      [keys],
    );
  };
  await enqueue();
  for (let died = 0; died < keys;) {
    died += await ask<number>(
      client,
      `WITH lease AS MATERIALIZED (SELECT gen_random_uuid() AS id, gen_random_uuid() AS relay),
            claimed AS MATERIALIZED (
              SELECT array_agg(c.message_id) AS ids FROM lease l, outbox.claim_batch($1::int, l.id, l.relay, 1000, 100000000, 60000) c)
       SELECT (outbox.settle(l.id, l.relay, c.ids, NULL, array_fill('reject'::outbox.outcome, ARRAY[cardinality(c.ids)]))).settled AS answer
         FROM lease l, claimed c`,
      [id],
    );
  }
  await enqueue();
  await ask(
    client,
    "SELECT outbox.wake_lanes(d, 1000000) AS answer FROM outbox.destinations d WHERE d.name = 'sink'",
  );
}
