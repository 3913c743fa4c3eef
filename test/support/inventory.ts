// Everything that a migration creates, as text: objects with their definitions and rights.

import type pg from 'pg';

export async function inventory(
  client: Pick<pg.Client, 'query'>,
  quotedSchema: string,
): Promise<string[]> {
  const { rows } = await client.query<{ object: string }>(
    `WITH ours AS (SELECT $1::text::regnamespace AS oid)
     SELECT format('%s %s %s %s', c.relkind, c.relname, c.relacl, c.reloptions) AS object FROM pg_class c, ours
      WHERE c.relnamespace = ours.oid
     UNION ALL SELECT format('%s %s %s %s', c.relname, a.attname, a.atttypid::regtype, a.attnotnull)
       FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid, ours
      WHERE c.relnamespace = ours.oid AND a.attnum > 0 AND c.relkind IN ('r', 'p', 'v')
     UNION ALL SELECT format('%s %s %s %s', p.oid::regprocedure, p.proacl, p.proconfig, md5(p.prosrc)) FROM pg_proc p, ours
      WHERE p.pronamespace = ours.oid
     ORDER BY 1`,
    [quotedSchema],
  );
  return rows.map((row) => row.object);
}
