// The steps of docs/guides/shards.md: the example with two databases, and a tenant that moves from one to the other
// with its order, its numbers and its dedupe keys.

import path from 'node:path';

import { expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { handler } from '../../src/destinations/handler.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { cli, runNode, startCli } from '../support/cli.js';
import { only } from '../support/only.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import type { TestDatabase } from '../support/postgres.js';
import { untilPlaces } from '../support/relay.js';
import { makeShardedRelay, produce, shardsOf } from '../support/shards.js';

const { blocks } = (await import(path.resolve('scripts/docs-blocks.mjs'))) as {
  blocks: (language: string) => { file: string; text: string }[];
};

const [eu, us] = [testDatabase(), testDatabase()];

/** The block of the page that contains these words, for the schema of this project. */
function sqlOf(words: string, { quoted }: TestDatabase): string {
  const text = only(
    blocks('sql').filter(
      (block) => block.file === 'docs/guides/shards.md' && block.text.includes(words),
    ),
  ).text;
  return text.replaceAll('outbox.', `${quoted}.`);
}

it('N9 a tenant moves with its order, its numbers and its dedupe keys', async () => {
  const databases = { eu, us };
  const before = shardsOf(databases, { tenants: { acme: 'eu' } });
  const after = shardsOf(databases, { tenants: { acme: 'us' } });
  const received: [sequence: number, n: number][] = [];
  const { relay } = makeShardedRelay({
    shards: before,
    destinations: {
      moved: handler(({ sequence, payload }) => {
        received.push([Number(sequence), (payload as { n: number }).n]);
      }),
    },
  });
  await relay.start();
  const message = (n: number, tenantId = 'acme') => ({
    topic: 'moved',
    tenantId,
    key: `order 'o'`,
    dedupeKey: `${tenantId}/${n}`,
    payload: { n },
  });
  await produce(databases, before, [message(1), message(2), message(3)]);
  await untilPlaces(eu, 'moved', { delivered: 3, waiting: 0, leased: 0 });
  const left = await eu.query(sqlOf('message_status', eu));
  expect(left.rows).toEqual([]);
  const { rows: lines } = await eu.query<{ line: string }>(sqlOf('next_sequence', eu));
  expect(lines).toHaveLength(4);
  // twice: the step can be repeated safely
  for (const { line } of [...lines, ...lines]) await us.query(line);
  await produce(databases, after, [message(4), message(5)]);
  await untilPlaces(us, 'moved', { delivered: 2, waiting: 0, leased: 0 });
  expect(received).toEqual([1, 2, 3, 4, 5].map((n) => [n, n]));
  const outbox = createOutbox({ schema: us.schema, shard: { of: after, name: 'us' } });
  const again = await us.inTransaction((client) => outbox.enqueue(client, message(2)));
  expect(again.duplicate).toBe(true);
});

it('N9 pending, leased and dead deliveries are reported before a tenant moves', async () => {
  const shards = shardsOf({ eu, us }, { tenants: { acme: 'eu' } });
  const { relay } = makeShardedRelay({ shards, destinations: { left: handler(() => undefined) } });
  await relay.start();
  await relay.stop();
  await produce({ eu, us }, shards, [{ topic: 'left', tenantId: 'acme' }]);
  const { rows } = await eu.query(sqlOf('message_status', eu));
  expect(rows).toEqual([{ destination: 'left', status: 'pending', count: '1' }]);
});

it('M1 N9 the example delivers for tenants of both databases', async () => {
  const [first, second] = [await otherDatabase('empty'), await otherDatabase('empty')];
  for (const { url } of [first, second]) await migrateUp({ url });
  const environment = { WAYBILL_SHARD_EU_URL: first.url, WAYBILL_SHARD_US_URL: second.url };
  const example = (name: string) => path.resolve('examples/first-steps', name);
  const config = ['--config', example('shards.config.mjs')];
  const relay = startCli(['start', '--no-server', ...config], { environment });
  for (const shard of ['eu', 'us'])
    await relay.says(new RegExp(`"shard":"${shard}".*relay_started`));
  for (const tenant of ['acme', 'umbrella']) {
    const producer = runNode([example('shards-producer.mjs'), tenant], { environment });
    const { stdout, stderr } = await producer.ended();
    const [, id, shard] = /enqueued (\S+) in (\w+)/.exec(stdout) ?? [];
    expect(shard, stderr).toBe(tenant === 'acme' ? 'us' : 'eu');
    await relay.says(`invoice for ${tenant}: message ${id}`);
  }
  relay.process.kill('SIGTERM');
  expect(await relay.ended()).toMatchObject({ code: 0 });
  const status = await cli(['status', '--json', ...config], { environment });
  expect(Object.keys(JSON.parse(status.stdout) as object)).toEqual(['eu', 'us']);
});
