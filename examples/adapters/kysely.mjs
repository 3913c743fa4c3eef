import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { createOutbox } from 'waybill/producer';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const db = new Kysely({ dialect: new PostgresDialect({ pool }) });
const outbox = createOutbox();

export function register(email) {
  return db.transaction().execute(async (trx) => {
    const insert = trx.insertInto('users').values({ email }).returning('id');
    const user = await insert.executeTakeFirstOrThrow();
    const payload = { userId: user.id, email };
    return outbox.enqueue(trx, { topic: 'user.registered', payload });
  });
}

export const close = () => db.destroy();
