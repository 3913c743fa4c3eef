// What a relay did is told once, whatever happens to the sample that is taken after it.

import { expect, it } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { Tally } from '../../src/relay/tally.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase();

it('P14 counts are not told again when the sample after them fails', async () => {
  const queue = await makeQueue(db);
  const database = new Proxy(openDatabase(db), {
    get(object, name) {
      if (name !== 'query') return Reflect.get(object, name) as unknown;
      const query: Database['query'] = (what, sql, values) =>
        what === 'take sample'
          ? Promise.reject(new Error('no sample'))
          : object.query(what, sql, values);
      return query;
    },
  });
  const tally = new Tally();
  const counts = { delivered: 3, retry: 0, reject: 0, pause: 0, release: 0 };
  tally.add(queue.id, {
    name: 'settled',
    destination: queue.name,
    counts,
    died: 0,
    latenciesMs: [],
    ms: 1,
  });
  for (let times = 0; times < 3; times += 1)
    await expect(tally.tell(database)).rejects.toThrow('no sample');
  const { rows } = await db.query<{ delivered: number }>(
    `SELECT sum(delivered)::int AS delivered FROM ${db.quoted}.statistics WHERE destination_id = $1`,
    [queue.id],
  );
  expect(rows).toEqual([{ delivered: 3 }]);
});
