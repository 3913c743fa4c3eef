// What the command line does without any database: it explains itself, refuses mistakes in its use before it
// connects, and never shows a password, whatever goes wrong.

import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { describe, expect, it, onTestFinished } from 'vitest';

import { cli, writeConfig } from '../support/cli.js';

/** Nothing listens there: a command that gets as far as connecting fails in another way. */
const nowhere = { DATABASE_URL: 'postgresql://127.0.0.1:1/none' };

describe('the command line', { timeout: 30_000 }, () => {
  it.each([
    [['--help'], 'Commands:'],
    [['migrate', 'up', '--help'], 'Examples:'],
    [['start', '--help'], 'Examples:'],
    [['drain', '--help'], 'Examples:'],
    [['status', '--help'], 'Examples:'],
    [['enqueue', '--help'], 'Examples:'],
    [['dead-letters', 'retry', '--help'], 'Examples:'],
    [['dead-letters', 'discard', '--help'], 'Examples:'],
    [['dev', '--help'], 'Examples:'],
  ])('%j explains itself', async (args, words) => {
    const { code, stdout, stderr } = await cli(args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain(words);
  });

  it('--version prints the version', async () => {
    const { code, stdout } = await cli(['--version']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  it.each([
    ['no topic', ['enqueue'], /missing required argument/],
    ['a delay that is no number', ['enqueue', 'a', '--delay-ms', 'soon'], /whole number/],
    ['an unknown option', ['enqueue', 'a', '--priority', '1'], /unknown option/],
    ['an unknown command', ['enquiry'], /unknown command/],
    ['an id that is none', ['dead-letters', 'retry', '17'], /"17" is not a message id/],
    ['no choice of dead letters', ['dead-letters', 'retry'], /Give ids or a filter, or --all/],
    ['a time that is none', ['dead-letters', 'list', '--before', 'today'], /2026-01-31T12:00:00Z/],
  ])('%s is a mistake in use: exit code 2 and nothing on stdout', async (_what, args, words) => {
    const { code, stdout, stderr } = await cli(args, { environment: nowhere });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(words);
  });
});

const secret = 'geh31m-wort';

describe('a password', () => {
  it.each<[string, (port: number) => string]>([
    ['it is wrong', (port) => `postgresql://app:${secret}@127.0.0.1:${port}/app`],
    ['the connection is refused', () => `postgresql://app:${secret}@127.0.0.1:1/app`],
    ['the host does not exist', () => `postgresql://app:${secret}@no-such-host.invalid/app`],
    ['the address is malformed', () => `postgresql://app:${secret}@127.0.0.1:port/app`],
    ['the address has another form', () => `mysql//app:${secret}@127.0.0.1/app`],
  ])('is never shown when %s', { timeout: 60_000 }, async (_what, urlOf) => {
    const server = createServer(refusePassword).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const url = urlOf((server.address() as AddressInfo).port);
    const config = writeConfig('{ destinations: { a: handler(() => {}) }, routes: [] }');
    const commands = [
      ['status'],
      ['migrate', 'up'],
      ['enqueue', 'a'],
      ['start', '--config', config],
    ];
    for (const args of commands) {
      const { code, stdout, stderr } = await cli(args, { environment: { DATABASE_URL: url } });
      expect(code, args.join(' ')).toBeGreaterThan(0);
      expect(stderr, args.join(' ')).toMatch(/\S/);
      expect(stdout + stderr, args.join(' ')).not.toContain(secret);
    }
  });
});

/** As much of the protocol as it takes to ask for a password and to refuse it. */
function refusePassword(socket: Socket): void {
  let asked = false;
  socket.on('error', () => undefined);
  socket.on('data', () => {
    if (!asked) {
      asked = true;
      socket.write(Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 3]));
      return;
    }
    const fields = 'SFATAL\0C28P01\0Mpassword authentication failed for user "app"\0\0';
    const length = Buffer.alloc(4);
    length.writeInt32BE(fields.length + 4);
    socket.end(Buffer.concat([Buffer.from('E'), length, Buffer.from(fields)]));
  });
}
