import { drizzle } from 'drizzle-orm/node-postgres';
import { pgTable, serial, text } from 'drizzle-orm/pg-core';
import { createInbox, createOutbox } from 'waybill/producer';

const users = pgTable('users', { id: serial().primaryKey(), email: text().notNull() });
const welcomes = pgTable('welcomes', { email: text().notNull() });
const db = drizzle(process.env.DATABASE_URL);
const outbox = createOutbox();
const inbox = createInbox();

export function register(email) {
  return db.transaction(async (tx) => {
    const [user] = await tx.insert(users).values({ email }).returning();
    const payload = { userId: user.id, email };
    return outbox.enqueue(tx, { topic: 'user.registered', payload });
  });
}

export function welcome(message) {
  return db.transaction((tx) =>
    inbox.process(tx, { consumer: 'welcomes', message }, () =>
      tx.insert(welcomes).values({ email: message.payload.email }),
    ),
  );
}

export const close = () => db.$client.end();
