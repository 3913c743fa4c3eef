// Reads a value that is longer than the longest string, then a short one, through the pool of a relay and through a
// direct connection, and reports the results. Run it with the database's address in DATABASE_URL.

import { constants } from 'node:buffer';

import { Database, resolveDatabaseOptions } from '../../dist/database/connection.js';

const tooLong = `SELECT repeat('x', ${constants.MAX_STRING_LENGTH + 1}) AS value`;
const database = new Database(
  // half a gigabyte takes long on a busy machine
  resolveDatabaseOptions({ url: process.env.DATABASE_URL, statementTimeoutMs: 300_000 }),
  {
    connections: 1,
    applicationName: 'read-too-long',
  },
);
/** @param {Promise<unknown>} work */
const codeOf = (work) =>
  work.then(
    () => 'read',
    (error) => error.code,
  );

const pool = await codeOf(database.queryTexts('read', tooLong, []));
const [row] = await database.query('read', 'SELECT 1 AS one');
const direct = await codeOf(database.directly('read-too-long', (query) => query('read', tooLong)));
await database.close();
process.stdout.write(JSON.stringify({ pool, direct, ...row }));
