import knex from 'knex';
import { createOutbox } from 'waybill/producer';

const db = knex({ client: 'pg', connection: process.env.DATABASE_URL });
const outbox = createOutbox();

export function register(email) {
  return db.transaction(async (trx) => {
    const [user] = await trx('users').insert({ email }).returning('id');
    const payload = { userId: user.id, email };
    return outbox.enqueue(trx, { topic: 'user.registered', payload });
  });
}

export const close = () => db.destroy();
