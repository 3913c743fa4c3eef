// The receiver and the keys of the documents, run unchanged: the example accepts what webhook() signs, and nothing
// else.

import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { runNode } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { waitFor } from '../support/wait.js';
import { deliver, id, opened, received } from '../support/webhook.js';

const example = (name: string): string => path.resolve('examples/first-steps', name);

type Keys = Record<'shared' | 'private' | 'public', string>;

async function keys(): Promise<Keys> {
  const { stdout } = await runNode([example('webhook-keys.mjs')]).ended();
  const key = (kind: string): string =>
    new RegExp(`^${kind} \\w+ +(wh\\w+_\\S+)$`, 'm').exec(stdout)?.[1] ?? '';
  return { shared: key('shared'), private: key('private'), public: key('public') };
}

async function startReceiver(secret: string): Promise<{ url: string; receiver: Running }> {
  const environment = { WEBHOOK_SECRET: secret, PORT: '0' };
  const receiver = runNode([example('webhook-receiver.mjs')], { environment });
  await receiver.says('listening on');
  const url = /listening on (\S+)/.exec(receiver.stdout)?.[1] ?? '';
  return { url, receiver };
}

describe.each(['shared', 'private'] as const)('the receiver of the documents, %s', (kind) => {
  it('M11 accepts signed requests, and answers unsigned ones with an error', async () => {
    const [own, others] = [await keys(), await keys()];
    const { url, receiver } = await startReceiver(kind === 'shared' ? own.shared : own.public);
    const signed = { secrets: [others[kind], own[kind]] };
    expect(await deliver(await opened({ url, ...signed }))).toMatchObject({ kind: 'delivered' });
    await waitFor(() => receiver.stdout.includes(`user.registered ${id} {"n": 1}`), {
      what: 'the event',
    });
    for (const secrets of [{ secrets: others[kind] }, {}])
      expect(await deliver(await opened({ url, ...secrets }))).toMatchObject({
        code: 'http_status',
        remoteCode: '401',
        response: 'the signature does not fit',
      });
  });

  it('M11 refuses requests that were changed on the way, or are too old', async () => {
    const own = await keys();
    const { url } = await startReceiver(kind === 'shared' ? own.shared : own.public);
    const { headers, body } = await received({ secrets: own[kind] });
    const send = async (changes: object, changedBody = body): Promise<number> => {
      const sent = { ...headers, ...changes, 'content-length': undefined };
      const pairs = Object.entries(sent).filter(
        ([name, value]) => name.startsWith('webhook-') && typeof value === 'string',
      ) as [string, string][];
      return (await fetch(url, { method: 'POST', headers: pairs, body: changedBody })).status;
    };
    expect(await send({})).toBe(204);
    expect(await send({}, '{"n": 2}')).toBe(401);
    expect(await send({ 'webhook-id': 'other' })).toBe(401);
    const old = String(Number(headers['webhook-timestamp']) - 600);
    expect(await send({ 'webhook-timestamp': old })).toBe(401);
  });
});
