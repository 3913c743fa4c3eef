// The upper limit of an enqueue: the same payloads into a bare table that has only a primary key.

import pg from 'pg';

export async function install(url) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(
    'CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb NOT NULL)',
  );
  await client.end();
}

export function openProducer() {
  return {
    enqueue: (client, payloads) =>
      client.query('INSERT INTO plain (payload) SELECT jsonb_array_elements($1::text::jsonb)', [
        JSON.stringify(payloads),
      ]),
    close() {},
  };
}
