// A relay as a process of its own, whose destinations all lead to the sink: one for each policy, singly and in
// batches. It runs until it is killed.

import { Agent, request } from 'node:http';

import {
  batchHandler,
  createRelay,
  delivered,
  handler,
  reject,
  retry,
} from '../../../dist/index.js';

/** @typedef {import('../../../dist/index.js').ClaimedMessage} ClaimedMessage */

/** @type {{ name: string, databaseUrl: string, sinkUrl: string, relay: object, retry: object, routes: Record<string, string[]> }} */
const options = JSON.parse(process.argv[2] ?? '{}');
const agent = new Agent({ keepAlive: true, maxSockets: 50 });

/** @param {string} path @param {string} body @returns {Promise<string>} */
function post(path, body) {
  return new Promise((resolve, fail) => {
    const headers = { 'x-relay': options.name, 'content-length': Buffer.byteLength(body) };
    const outgoing = request(
      `${options.sinkUrl}${path}`,
      { method: 'POST', agent, headers },
      (answer) => {
        let text = '';
        answer.setEncoding('utf8');
        answer.on('data', (chunk) => (text += chunk));
        answer.on('end', () => resolve(text));
        answer.on('error', fail);
      },
    );
    outgoing.on('error', fail);
    outgoing.end(body);
  });
}

/** @param {string} destination @param {readonly ClaimedMessage[]} messages */
async function send(destination, messages) {
  const items = messages.map((message) => ({
    id: message.id,
    label: /** @type {{ label: string }} */ (message.payload).label,
    namespace: message.namespace,
    sequence: message.sequence,
    previousSequence: message.previousSequence,
  }));
  /** @type {string[]} */
  const answers = JSON.parse(await post(`/${destination}`, JSON.stringify(items)));
  return answers.map((answer) => {
    if (answer === 'accept') return delivered();
    return answer === 'reject' ? reject({ code: 'refused' }) : retry({ code: 'not_now' });
  });
}

/** @param {string} name @param {object} settings */
const singly = (name, settings) =>
  handler(async (message) => (await send(name, [message]))[0], {
    concurrency: 8,
    retry: options.retry,
    ...settings,
  });
/** @param {string} name @param {object} settings */
const together = (name, settings) =>
  batchHandler((messages) => send(name, messages), {
    batchSize: 8,
    concurrency: 4,
    retry: options.retry,
    ...settings,
  });

const relay = createRelay({
  database: { url: options.databaseUrl },
  destinations: {
    plain: singly('plain', { whenDead: 'continue' }),
    strict: together('strict', { whenDead: 'block' }),
    parking: together('parking', { whenDead: 'park' }),
    bulk: together('bulk', { whenDead: 'continue', fairness: 'tenant' }),
  },
  routes: Object.entries(options.routes).flatMap(([topic, to]) =>
    to.map((name) => ({ topic, to: name })),
  ),
  relay: { ...options.relay, name: options.name },
  onEvent: (event) => {
    if (event.name === 'trouble') process.send?.({ trouble: `${event.what}: ${event.error}` });
  },
});

process.on('disconnect', () => process.exit(1));
await relay.start();
process.send?.({ started: relay.id });
