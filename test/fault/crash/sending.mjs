// The sending half of a relay process whose destinations lead to a sink: the sink answers each message with a word,
// which becomes the outcome.

import { Agent, request } from 'node:http';

import { delivered, reject, retry } from '../../../dist/index.js';

/** @typedef {import('../../../dist/index.js').Outcome} Outcome */

/** @param {{ name: string, sinkUrl: string }} relay */
export function createSender({ name, sinkUrl }) {
  const agent = new Agent({ keepAlive: true, maxSockets: 100 });

  /** @param {string} path @param {string} body @returns {Promise<string>} */
  function post(path, body) {
    return new Promise((resolve, fail) => {
      const headers = { 'x-relay': name, 'content-length': Buffer.byteLength(body) };
      const outgoing = request(
        `${sinkUrl}${path}`,
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

  /** @param {string} path @param {readonly object[]} items @returns {Promise<Outcome[]>} */
  async function send(path, items) {
    /** @type {string[]} */
    const answers = JSON.parse(await post(path, JSON.stringify(items)));
    return answers.map((answer) => {
      if (answer === 'accept') return delivered();
      return answer === 'reject' ? reject({ code: 'refused' }) : retry({ code: 'not_now' });
    });
  }

  return { send, close: () => agent.destroy() };
}
