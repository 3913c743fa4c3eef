import postgres from 'postgres';
import { createOutbox } from 'waybill/producer';

const sql = postgres(process.env.DATABASE_URL);
const outbox = createOutbox();

export function register(email) {
  return sql.begin(async (tx) => {
    const [user] = await tx`INSERT INTO users (email) VALUES (${email}) RETURNING id`;
    const payload = { userId: user.id, email };
    return outbox.enqueue(tx, { topic: 'user.registered', payload });
  });
}

export const close = () => sql.end();
