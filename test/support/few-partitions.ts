// Reduces the partitions of a test template from sixty days to a week: planning a statement over sixty partitions, and
// copying them, is a fifth of the processor time of the database tests. Relays make the missing partitions at their
// start, so make_partitions gets the week as its default; and partition_days_ahead counts the days that are left out,
// so that nothing reports them as missing. Tests of the partitions themselves take the database with all of them.

import pg from 'pg';

const migratedDays = 60;
const keptDays = 7;

export async function keepFewPartitions(url: string, schema: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(`SET search_path = ${pg.escapeIdentifier(schema)}`);
    const { rows } = await client.query<{ partition: string }>(
      `SELECT b.partition::text
         FROM unnest(ARRAY['messages', 'attempts']::regclass[]) parent, partition_bounds(parent) b
        WHERE b.day > (now() AT TIME ZONE 'UTC')::date + ${keptDays}`,
    );
    await client.query(`DROP TABLE ${rows.map(({ partition }) => partition).join(', ')}`);
    await edit(client, 'make_partitions', `DEFAULT ${migratedDays}`, `DEFAULT ${keptDays}`);
    const lastDay = 'min(last - current_date)';
    await edit(client, 'partition_days_ahead', lastDay, `${lastDay} + ${migratedDays - keptDays}`);
  } finally {
    await client.end();
  }
}

/** Replaces a part of the text of a function. */
async function edit(client: pg.Client, name: string, old: string, changed: string): Promise<void> {
  const { rows } = await client.query<{ text: string }>(
    'SELECT pg_get_functiondef($1::regproc) AS text',
    [name],
  );
  const text = rows[0]?.text ?? '';
  if (!text.includes(old)) throw new Error(`${name} has no "${old}"`);
  await client.query(text.replace(old, changed));
}
