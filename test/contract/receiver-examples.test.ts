// The receivers and the keys of the documents, run unchanged: each example accepts what webhook() signs, and nothing
// else.

import { execFileSync } from 'node:child_process';
import path from 'node:path';

import { describe, expect, inject, it } from 'vitest';

import { runNode, runProgram, temporaryDirectory } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { waitFor } from '../support/wait.js';
import { deliver, id, opened, received } from '../support/webhook.js';

const example = (name: string): string => path.resolve('examples', name);

type Keys = Record<'shared' | 'private' | 'public', string>;

async function keys(): Promise<Keys> {
  const { stdout } = await runNode([example('first-steps/webhook-keys.mjs')]).ended();
  const key = (kind: string): string =>
    new RegExp(`^${kind} \\w+ +(wh\\w+_\\S+)$`, 'm').exec(stdout)?.[1] ?? '';
  return { shared: key('shared'), private: key('private'), public: key('public') };
}

type Environment = Record<string, string>;
type Example = {
  name: string;
  /** The program that it needs. */
  needs: string;
  start: (environment: Environment) => Running;
  kinds: readonly ('shared' | 'private')[];
};

/** Compiled once; `go run` would leave the compiled program behind when it is stopped. */
let compiled: string | undefined;
function compiledGo(): string {
  compiled ??= path.join(temporaryDirectory(), 'receiver');
  execFileSync('go', ['build', '-o', compiled, example('receivers/receiver.go')]);
  return compiled;
}

const examples: Example[] = [
  {
    name: 'TypeScript',
    needs: 'node',
    start: (environment) =>
      runNode([path.resolve('node_modules/.bin/jiti'), example('receivers/node.ts')], {
        environment,
      }),
    kinds: ['shared', 'private'],
  },
  {
    name: 'Python',
    needs: 'python3',
    start: (environment) =>
      runProgram('python3', [example('receivers/receiver.py')], { environment }),
    kinds: ['shared'],
  },
  {
    name: 'Go',
    needs: 'go',
    start: (environment) => runProgram(compiledGo(), [], { environment }),
    kinds: ['shared', 'private'],
  },
];

function isInstalled(program: string): boolean {
  if (program === 'go' && !inject('isFull')) {
    console.warn(
      'The receiver in Go is left out: compiling it takes a minute (npm run test:full).',
    );
    return false;
  }
  try {
    execFileSync(program, [program === 'go' ? 'version' : '--version'], { stdio: 'ignore' });
    return true;
  } catch {
    console.warn(`The receiver that needs ${program} is left out: it is not installed.`);
    return false;
  }
}

async function startReceiver(
  { start }: Example,
  secret: string,
): Promise<{ url: string; receiver: Running }> {
  const receiver = start({ WEBHOOK_SECRET: secret, PORT: '0' });
  await receiver.says('listening on');
  const url = /listening on (\S+)/.exec(receiver.stdout)?.[1] ?? '';
  return { url, receiver };
}

const cases = examples
  .filter(({ needs }) => isInstalled(needs))
  .flatMap((one) => one.kinds.map((kind) => [one.name, kind, one] as const));

describe.each(cases)('the receiver in %s, %s', (_name, kind, one) => {
  it('M11 accepts signed requests, and answers unsigned ones with an error', async () => {
    const [own, others] = [await keys(), await keys()];
    const { url, receiver } = await startReceiver(one, kind === 'shared' ? own.shared : own.public);
    const signed = { secrets: [others[kind], own[kind]] };
    expect(await deliver(await opened({ url, ...signed }))).toMatchObject({ kind: 'delivered' });
    await waitFor(() => receiver.stdout.includes(`user.registered ${id} {"n": 1}`), {
      what: 'the event',
    });
    for (const secrets of [{ secrets: others[kind] }, {}])
      expect(await deliver(await opened({ url, ...secrets }))).toMatchObject({
        code: 'http_status',
        remoteCode: expect.stringMatching(/^40[01]$/) as string,
        response: expect.stringContaining('signature') as string,
      });
  });

  it('M11 refuses requests that were changed on the way, or are too old', async () => {
    const own = await keys();
    const { url } = await startReceiver(one, kind === 'shared' ? own.shared : own.public);
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
