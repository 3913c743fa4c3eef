// The counters of a relay are reported once, even if the sample after them fails.

import { expect, it } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { Counters } from '../../src/relay/upkeep/counters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase();

it('P14 counters are not reported again when the sample after them fails', async () => {
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
  const counters = new Counters();
  const counts = { delivered: 3, retry: 0, reject: 0, pause: 0, release: 0, discard: 0 };
  counters.add(queue.id, {
    name: 'settled',
    destination: queue.name,
    counts,
    died: 0,
    latenciesMs: [],
    ms: 1,
  });
  for (let times = 0; times < 3; times += 1)
    await expect(counters.tell(database)).rejects.toThrow('no sample');
  const { rows } = await db.query<{ delivered: number }>(
    `SELECT sum(delivered)::int AS delivered FROM ${db.quoted}.statistics WHERE destination_id = $1`,
    [queue.id],
  );
  expect(rows).toEqual([{ delivered: 3 }]);
});
