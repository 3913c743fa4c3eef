import pg from 'pg';

import { library } from '../library.js';

export default library<pg.PoolClient>(['pg'], async (url) => {
  const pool = new pg.Pool({ connectionString: url });
  const outside = new pg.Client({ connectionString: url });
  await outside.connect();
  return {
    outside,
    async transaction(work) {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        const value = await work(client);
        await client.query('COMMIT');
        return value;
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    },
    async nested(client, work) {
      await client.query('SAVEPOINT inner_one');
      try {
        return await work(client);
      } catch (error) {
        await client.query('ROLLBACK TO SAVEPOINT inner_one');
        throw error;
      }
    },
    insert: (client, name) => client.query('INSERT INTO effects VALUES ($1)', [name]),
    close: () => Promise.all([pool.end(), outside.end()]),
  };
});
