// A worker process that uses only the SQL functions of Waybill, over one plain connection for each of its destinations.
// It claims, and sends the messages in one of three ways: one after the other, continuing after a failure; all at once;
// or in one request. Then it reports each result. It runs until it is killed.

import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';

/** @typedef {{ message_id: string, claim_no: number, namespace: string, sequence: string | null, previous_sequence: string | null, payload: { label: string } }} Message */

/** @type {{ name: string, database: { url: string }, sinkUrl: string, relay: { leaseMs: number, batchSize: number } }} */
const { name, database, sinkUrl, relay } = JSON.parse(process.argv[2] ?? '{}');
const token = randomUUID();
const ways = [inTurn, atOnce, together];

/** @typedef {(sql: string, values: unknown[]) => Promise<any[]>} Query */

/** @param {string} destination @param {Message[]} messages @returns {Promise<string[]>} */
async function send(destination, messages) {
  const items = messages.map((message) => ({
    id: message.message_id,
    label: message.payload.label,
    namespace: message.namespace,
    sequence: message.sequence,
    previousSequence: message.previous_sequence,
  }));
  const answer = await fetch(`${sinkUrl}/${destination}`, {
    method: 'POST',
    headers: { 'x-relay': name },
    body: JSON.stringify(items),
  });
  return /** @type {Promise<string[]>} */ (answer.json());
}

/** @param {Query} query @param {string} destination @param {Message} message @param {string | undefined} answer */
async function end(query, destination, { message_id, claim_no }, answer) {
  if (answer === 'accept')
    await query('SELECT outbox.ack($1, $2, attempt => $3, destination => $4)', [
      token,
      message_id,
      claim_no,
      destination,
    ]);
  else
    await query(
      `SELECT outbox.nack($1, $2, 'the sink said no', attempt => $3, terminal => $4, destination => $5)`,
      [token, message_id, claim_no, answer === 'reject', destination],
    );
}

/** @param {Query} query @param {string} destination @param {Message[]} messages */
async function inTurn(query, destination, messages) {
  for (const message of messages)
    await end(query, destination, message, (await send(destination, [message]))[0]);
}

/** @param {Query} query @param {string} destination @param {Message[]} messages */
async function atOnce(query, destination, messages) {
  await Promise.all(
    messages.map(async (message) =>
      end(query, destination, message, (await send(destination, [message]))[0]),
    ),
  );
}

/** @param {Query} query @param {string} destination @param {Message[]} messages */
async function together(query, destination, messages) {
  const answers = await send(destination, messages);
  const taken = messages.filter((_, index) => answers[index] === 'accept');
  await query('SELECT outbox.mark_delivered($1, $2, $3)', [
    token,
    taken.map(({ message_id }) => message_id),
    destination,
  ]);
  for (const [index, message] of messages.entries())
    if (answers[index] !== 'accept') await end(query, destination, message, answers[index]);
}

/** @param {string} destination */
async function serve(destination) {
  const client = new pg.Client({ connectionString: database.url, application_name: name });
  await client.connect();
  /** @type {Query} */
  const query = async (sql, values) => (await client.query(sql, values)).rows;
  for (let round = 0; ; round += 1) {
    try {
      const messages = await query(
        `SELECT * FROM outbox.claim($1, $2, $3, lease => $4 * interval '1 millisecond')`,
        [destination, token, relay.batchSize, relay.leaseMs],
      );
      if (messages.length === 0) await delay(20);
      else await ways[round % 3]?.(query, destination, messages);
    } catch (error) {
      process.send?.({ trouble: String(error) });
      await delay(100);
    }
  }
}

process.on('disconnect', () => process.exit(1));
process.send?.({ started: token });
await Promise.all(['worker', 'strict-worker'].map(serve));
