import knex from 'knex';
import type { Knex } from 'knex';

import { library } from '../library.js';

// Column names are rewritten, as in many applications.
const camelCase = (name: string) =>
  name.replaceAll(/_([a-z])/g, (_all, letter: string) => letter.toUpperCase());

function rewritten(result: unknown): unknown {
  if (Array.isArray(result)) return result.map(rewritten);
  if (typeof result !== 'object' || result === null) return result;
  if ('rows' in result) return { ...result, rows: rewritten(result.rows) };
  return Object.fromEntries(
    Object.entries(result).map(([name, value]) => [camelCase(name), value as unknown]),
  );
}

export default library<Knex.Transaction>(['knex', 'pg'], (url) => {
  const db = knex({ client: 'pg', connection: url, postProcessResponse: rewritten });
  return Promise.resolve({
    outside: db,
    transaction: (work) => db.transaction(work),
    nested: (trx, work) => trx.transaction(work),
    insert: (trx, name) => trx('effects').insert({ name }),
    close: () => db.destroy(),
  });
});
