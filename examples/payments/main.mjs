// Payments processor: each part connects with its own login. A busy rail is retried, and a payment that the guard rejects
// reaches no rail. Behind a payment that failed for good, its participant waits for an operator at sepa, and continues
// with cards. Run it with `npm run example -- payments`.

import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';
import { createRelay, migrateUp } from 'waybill';

import { executor } from './rails.mjs';

const url = process.env.DATABASE_URL;
await migrateUp({ url });
const superuser = await connect(url);
for (const file of ['schema.sql', 'names.sql'])
  await superuser.query(readFileSync(new URL(file, import.meta.url), 'utf8'));

// the rails: one is busy the first time, one has an account that is closed until it is opened below
let closed = true;
const calls = [];
const send = (rail, payment) => {
  calls.push(`${payment.participantId} ${payment.sequenceId}`);
  const again = calls.filter((call) => call === calls.at(-1)).length > 1;
  if (rail === 'mobile' && !again) return { code: 'RAIL_BUSY', message: 'come back later' };
  if (payment.note === 'closed' && closed) return { code: 'ACCOUNT_CLOSED' };
  return { reference: `${rail}-${payment.idempotencyKey}` };
};
const relay = createRelay(
  executor(send, {
    databaseUrl: await addressOf('symphony_executor'),
    retry: { maxAttempts: 4, baseMs: 50, maxMs: 500 },
  }),
);
await relay.start();

const ingest = await connect(await addressOf('symphony_ingest'));
const supervisor = await connect(await addressOf('symphony_supervisor'));
const operator = await connect(await addressOf('symphony_operator'));
const iban = 'DE89370400440532013000';
const token = 'tok_4eC39HqLyjWDarjtT1';
const run = randomUUID().slice(0, 8);
const [alder, birch, cedar, dogwood] = ['alder', 'birch', 'cedar', 'dogwood'].map(
  (name) => `${name}-${run}`,
);

const first = await enqueue(alder, 'sepa', {
  amount: '120.50',
  currency: 'EUR',
  destination: iban,
});
const repeat = await enqueue(
  alder,
  'sepa',
  { amount: '120.50', currency: 'EUR', destination: iban },
  first,
);
console.log('a repeat is the first one:', repeat.outbox_id === first.outbox_id);
await enqueue(alder, 'sepa', { amount: '0.00', currency: 'EUR', destination: iban });
await enqueue(birch, 'mobile', { amount: '900', currency: 'UGX', destination: '+256772123456' });
for (const note of ['closed', 'behind it', 'behind it'])
  await enqueue(cedar, 'sepa', { amount: '10.00', currency: 'EUR', destination: iban, note });
for (const note of ['closed', 'behind it'])
  await enqueue(dogwood, 'card', { amount: '5.00', currency: 'USD', destination: token, note });

await until('three failures', 'FAILED', 3);
await until('three deliveries', 'DISPATCHED', 3);
console.log('attempts:');
console.table(await attempts());
const blocked = `SELECT pending, dlq_depth, array_to_string(blocked_participants, ', ') AS blocked_participants
  FROM supervisor_outbox_status WHERE rail_type = 'sepa'`;
console.log('sepa:', JSON.stringify((await supervisor.query(blocked)).rows[0]));

closed = false;
const { rows } = await operator.query(
  `SELECT outbox.retry_dead_letters(ids => ARRAY (
     SELECT DISTINCT outbox_id FROM payment_outbox_attempts WHERE participant_id = $1 AND state = 'FAILED')) AS count`,
  [cedar],
);
await until('six deliveries', 'DISPATCHED', 6);
console.log(`the operator released ${rows[0].count} payment, and the two behind it followed:`);
console.log(calls.filter((call) => call.startsWith(cedar)).join(', '));
console.log('paid:', (await attempts()).filter(({ state }) => state === 'DISPATCHED').length);

await relay.stop();
await Promise.all([superuser, ingest, supervisor, operator].map((each) => each.end()));

async function enqueue(participant, rail, payload, again) {
  const sent = await ingest.query('SELECT * FROM enqueue_payment_outbox($1, $2, $3, $4, $5)', [
    again?.instruction_id ?? `pay-${randomUUID()}`,
    participant,
    'first-try',
    rail,
    payload,
  ]);
  return sent.rows[0];
}

async function attempts() {
  const seen = await supervisor.query(
    `SELECT participant_id, sequence_id, attempt_no, state, error_code, rail_code, rail_reference
       FROM payment_outbox_attempts WHERE participant_id = ANY ($1) ORDER BY participant_id, sequence_id, attempt_no`,
    [[alder, birch, cedar, dogwood]],
  );
  return seen.rows;
}

async function until(what, state, count) {
  for (let looks = 0; looks < 1000; looks += 1) {
    if ((await attempts()).filter((attempt) => attempt.state === state).length >= count) return;
    await delay(20);
  }
  throw new Error(`waited in vain for ${what}`);
}

/** The same database as one of the logins, with a password for this run. */
async function addressOf(login) {
  const password = randomBytes(18).toString('base64url');
  await superuser.query(`ALTER ROLE ${login} PASSWORD '${password}'`);
  return Object.assign(new URL(url), { username: login, password }).href;
}

async function connect(connectionString) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  return client;
}
