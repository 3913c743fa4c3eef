// Reads results of two megabytes one after the other, then prints how many full garbage collections that took. Usage:
// read-much.mjs RESULTS, with the database's address in DATABASE_URL.

import { Database, resolveDatabaseOptions } from '../../dist/database/connection.js';
import { countCleanings } from './cleanings.mjs';

const cleanings = countCleanings();
const database = new Database(resolveDatabaseOptions({ url: process.env.DATABASE_URL }), {
  connections: 1,
  applicationName: 'read-much',
});
for (let index = 0; index < Number(process.argv[2]); index += 1)
  await database.queryTexts(
    'read',
    "SELECT i, repeat('x', 500) || i, gen_random_uuid(), now(), 'user.registered' FROM generate_series(1, $1::int) i",
    [2000],
  );
await database.close();
process.stdout.write(String(await cleanings()));
