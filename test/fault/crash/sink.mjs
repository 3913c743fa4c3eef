// The independent sink: a plain HTTP server without any code of Waybill. It appends what it receives to its own log
// before it answers, and decides by the message's id alone whether to accept it. The harness can set a trap for one
// relay: its next request is held for good, before or after it was logged.
//
// Log, tab-separated: answer, destination, message id, claim number (empty if not sent), relay, hash of the body.

import { createHash } from 'node:crypto';
import { openSync, writeSync } from 'node:fs';
import { createServer } from 'node:http';

/** @type {{ logFile: string }} */
const options = JSON.parse(process.argv[2] ?? '{}');
const log = openSync(options.logFile, 'a');

/** Destination and message → how often it was received. @type {Map<string, number>} */
const receptions = new Map();
/** Relay → whether its request is logged before it is held. @type {Map<string, boolean>} */
const traps = new Map();

/** @typedef {{ id: string, claimNo: number | null, body: string }} Item */

/**
 * Most messages are accepted; some only the second time, some never, some are rejected.
 * @param {string} id
 * @param {number} times
 */
function decide(id, times) {
  const lot = Number.parseInt(id.slice(-6), 16) % 1000;
  if (lot < 2) return 'reject';
  if (lot < 4) return 'retry';
  return lot < 30 && times === 1 ? 'retry' : 'accept';
}

/** @param {string} relay @param {string} destination @param {Item[]} items */
function receive(relay, destination, items) {
  const answers = items.map(({ id }) => {
    const key = `${destination} ${id}`;
    const times = (receptions.get(key) ?? 0) + 1;
    receptions.set(key, times);
    return decide(id, times);
  });
  const lines = items.map(({ id, claimNo, body }, index) => {
    // as the producer wrote it: without the spaces that the database adds
    const hash = createHash('sha1')
      .update(JSON.stringify(JSON.parse(body)))
      .digest('hex');
    return [answers[index], destination, id, claimNo ?? '', relay, hash].join('\t');
  });
  writeSync(log, `${lines.join('\n')}\n`);
  return answers;
}

const server = createServer((request, response) => {
  /** @type {Buffer[]} */
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const body = Buffer.concat(chunks).toString('utf8');
    const [, form, destination = ''] = (request.url ?? '').split('/');
    const relay = String(request.headers['x-relay']);
    /** @type {Item[]} */
    const items =
      form === 'webhook'
        ? [{ id: String(request.headers['webhook-id']), claimNo: null, body }]
        : JSON.parse(body);
    const logged = traps.get(relay);
    if (logged !== undefined) {
      traps.delete(relay);
      if (logged) receive(relay, destination, items);
      process.send?.({ trapped: relay, destination, ids: items.map(({ id }) => id) });
      return;
    }
    const answers = receive(relay, destination, items);
    if (form === 'webhook') response.statusCode = answers[0] === 'accept' ? 200 : 500;
    response.end(form === 'webhook' ? answers[0] : JSON.stringify(answers));
  });
});
server.keepAliveTimeout = 600_000;

process.on(
  'message',
  (
    /** @type {{ trap?: string, logged?: boolean, untrap?: string, seen?: { question: number, destination: string, ids: string[] } }} */ said,
  ) => {
    if (said.trap !== undefined) traps.set(said.trap, said.logged ?? false);
    if (said.untrap !== undefined) traps.delete(said.untrap);
    if (said.seen !== undefined) {
      const { question, destination, ids } = said.seen;
      const count = ids.filter((id) => receptions.has(`${destination} ${id}`)).length;
      process.send?.({ question, count });
    }
  },
);
process.on('disconnect', () => process.exit(0));
server.listen(0, '127.0.0.1', () => process.send?.({ port: server.address()?.port }));
