// CRM: contacts are written together with their messages, two workers drain at once, and the database rejects a
// duplicate identity. Run it with `npm run example -- crm`.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

import pg from 'pg';
import { createOutbox, migrateUp } from 'waybill';

import { drain, overSql } from './worker.mjs';

const url = process.env.DATABASE_URL;
const outbox = createOutbox();
const [acme, globex] = [randomUUID(), randomUUID()];

await migrateUp({ url });
const client = await connect();
await client.query(readFileSync(new URL('schema.sql', import.meta.url), 'utf8'));

for (let n = 1; n <= 250; n += 1) {
  await addContact(n % 2 === 0 ? acme : globex, `Person.${n}@Example.com`);
}
console.log('250 contacts written, each with its message');

const published = [];
const publish = (rows) => {
  const accepted = rows.map(({ id }) => id);
  published.push(...accepted);
  return { accepted, failed: {} };
};
const workers = await Promise.all([connect(), connect()]);
const reports = await Promise.all(workers.map((worker) => drain(overSql(worker), publish)));
console.log('two workers at once:', JSON.stringify(reports));
console.log(`published ${published.length}, of which ${new Set(published).size} different`);

try {
  await addContact(acme, 'PERSON.2@example.com');
} catch (error) {
  console.log('the same address in capitals:', error.message);
}
const { rows } = await client.query(
  'SELECT count(*)::int AS messages, count(delivered_at)::int AS delivered FROM public.outbox',
);
console.log('public.outbox:', JSON.stringify(rows[0]));
await Promise.all([client, ...workers].map((each) => each.end()));

/** The contact, its identity and the message exist together, or none of them. */
async function addContact(tenantId, email) {
  const contactId = randomUUID();
  await client.query('BEGIN');
  try {
    await client.query("INSERT INTO public.contact_identities VALUES ($1, $2, 'email', $3)", [
      tenantId,
      contactId,
      email,
    ]);
    await outbox.enqueue(client, {
      topic: 'contact.created',
      tenantId,
      payload: { contactId, email },
    });
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

async function connect() {
  const connected = new pg.Client({ connectionString: url });
  await connected.connect();
  return connected;
}
