// Module of the bench changes: a service that knows nothing of messages. It changes rows of its table, and a watch
// makes messages of the changes.

import pg from 'pg';

import * as contender from './contender.mjs';

export const producerUrl = contender.producerUrl;
const jobs = 1000;

export async function install(url) {
  await contender.install(url);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`
    CREATE TABLE cataloguing_jobs (job_id uuid PRIMARY KEY DEFAULT gen_random_uuid(), organization_id uuid NOT NULL
      DEFAULT gen_random_uuid(), number int UNIQUE, n int, title text);
    INSERT INTO cataloguing_jobs (number, title) SELECT n, repeat('a title ', 50) FROM generate_series(0, ${jobs - 1}) n;
    GRANT SELECT, UPDATE ON cataloguing_jobs TO bench_producer;
    SELECT outbox.watch('cataloguing_jobs', topic => 'job', tenant => 'organization_id', columns => '{job_id,n}',
      when_changed => '{n}')`);
  await client.end();
}

export const openLoader = contender.openLoader;

/** Writes each number into the next row, whichever that is: the number alone identifies the message of the change. */
export function openProducer() {
  let next = 0;
  return {
    async enqueue(client, payloads) {
      for (const { n } of payloads)
        await client.query('UPDATE cataloguing_jobs SET n = $1 WHERE number = $2', [
          n,
          next++ % jobs,
        ]);
    },
    close() {},
  };
}
