// The tables of the application, and the connection to them.

import { drizzle } from 'drizzle-orm/node-postgres';
import { pgTable, serial, text } from 'drizzle-orm/pg-core';

export const users = pgTable('users', { id: serial().primaryKey(), email: text().notNull() });
export const welcomes = pgTable('welcomes', { email: text().notNull() });
export const db = drizzle(process.env.DATABASE_URL);
