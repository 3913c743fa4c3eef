// The command line without a database: it prints help, refuses wrong usage before it connects, and never shows a
// password, whatever fails.

import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import path from 'node:path';

import { describe, expect, it, onTestFinished } from 'vitest';

import { checkAddress, withoutPassword } from '../../src/database/address.js';
import { cli, startCli, temporaryDirectory, writeConfig } from '../support/cli.js';

/** No server listens there: a command that gets as far as connecting fails with another error. */
const nowhere = { DATABASE_URL: 'postgresql://127.0.0.1:1/none' };

const endpoint = ['endpoints', 'add', 'https://example.com/hooks'];

describe('the command line', { timeout: 60_000 }, () => {
  it.each([
    [['--help'], 'Commands:'],
    [['migrate', 'up', '--help'], 'Examples:'],
    [['start', '--help'], 'Examples:'],
    [['drain', '--help'], 'Examples:'],
    [['status', '--help'], 'Examples:'],
    [['doctor', '--help'], 'Exit codes: 0 when no check warns, 10 when one does'],
    [['enqueue', '--help'], 'Examples:'],
    [['dead-letters', 'retry', '--help'], 'Examples:'],
    [['dead-letters', 'discard', '--help'], 'Examples:'],
    [['dev', '--help'], 'Examples:'],
    [['tail', '--help'], 'Examples:'],
    [['replay', '--help'], 'Examples:'],
    [['replay', 'resume', '--help'], 'Examples:'],
    [['keys', 'list', '--help'], 'Examples:'],
    [['keys', 'skip', '--help'], 'Examples:'],
  ])('%j prints its help', async (args, words) => {
    const { code, stdout, stderr } = await cli(args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain(words);
  });

  it('mcp has no --json, because it answers in its protocol', async () => {
    const { code, stdout } = await cli(['mcp', '--help']);
    expect(code).toBe(0);
    expect(stdout).not.toContain('--json');
    expect(await cli(['mcp', '--json'])).toMatchObject({ code: 2 });
  });

  it('a reader that closes the pipe early is no failure, and changes no exit code', async () => {
    const unread = (args: string[]) => {
      const running = startCli(args);
      running.process.stdout?.destroy();
      return running.ended();
    };
    expect(await unread(['migrate', 'sql'])).toMatchObject({ code: 0, stderr: '' });
    expect(await unread(['migrate', 'sql', '--nonsense'])).toMatchObject({ code: 2 });
  });

  it('--version prints the version', async () => {
    const { code, stdout } = await cli(['--version']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  it.each([
    ['no topic', ['enqueue'], /missing required argument/],
    ['a delay that is not a number', ['enqueue', 'a', '--delay-ms', 'soon'], /whole number/],
    ['an unknown option', ['enqueue', 'a', '--priority', '1'], /unknown option/],
    ['an unknown command', ['enquiry'], /unknown command/],
    ['an unknown check', ['doctor', 'fsync'], /There is no check fsync; there are .*fsync_off/],
    ['an invalid id', ['dead-letters', 'retry', '17'], /"17" is not a message id/],
    ['no selection of dead letters', ['dead-letters', 'retry'], /Give ids or a filter, or --all/],
    ['no destination of a replay', ['replay', '--topic', 'a'], /Give --destination/],
    [
      'no selection for a replay',
      ['replay', '--destination', 'crm'],
      /Give a filter or ids, or --all/,
    ],
    ['a replay that is not a number', ['replay', 'resume', 'last'], /whole number/],
    ['no selection of keys', ['keys', 'retry'], /Give a filter, or --all/],
    ['an unknown event', ['tail', '--event', 'lost'], /Allowed choices are enqueued/],
    ['an invalid time', ['dead-letters', 'list', '--before', 'today'], /2026-01-31T08:00:00Z/],
    [
      'an endpoint without a tenant',
      [...endpoint, '--topics', '*'],
      /--tenant ID, or --all-tenants/,
    ],
    [
      'an endpoint of one and of all tenants',
      [...endpoint, '--topics', '*', '--tenant', 'a', '--all-tenants'],
      /--all-tenants/,
    ],
    ['an endpoint without topics', [...endpoint, '--tenant', 'a'], /which topics/],
    [
      'an endpoint with an invalid topic',
      [...endpoint, '--topics', 'a,b.', '--tenant', 'a'],
      /topics\[1\] is "b\."/,
    ],
    [
      'credentials in the address of an endpoint',
      ['endpoints', 'add', 'https://u:geheim@example.com', '--topics', '*', '--tenant', 'a'],
      /"https:\/\/…@example.com": put credentials into headers/,
    ],
    [
      'an endpoint without an address',
      ['endpoints', 'add', 'example.com', '--topics', '*', '--tenant', 'a'],
      /endpoint.url is/,
    ],
    ['no change of an endpoint', ['endpoints', 'change', 'x'], /nothing to change/],
    [
      'a missing headers file',
      ['endpoints', 'change', 'x', '--headers-file', '/none'],
      /--headers-file is "\/none"/,
    ],
  ])('%s is wrong usage: exit code 2 and nothing on stdout', async (_what, args, words) => {
    const { code, stdout, stderr } = await cli(args, { environment: nowhere });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(words);
    expect(stderr).not.toContain('geheim');
  });
});

const secret = 'geh31m-wort';
const at = (host: string) => `postgresql://app:${secret}@${host}/app`;
const where = /the database's address \(DATABASE_URL\)/.source;

type Unreachable = {
  what: string;
  url: (port: number) => string;
  /** What the server at the port answers: an error code and a text, or only a request for the password. */
  answer?: { code: string; text: string } | 'asks';
  exit: number;
  says: RegExp;
};

const unreachable: Unreachable[] = [
  {
    what: 'the password is wrong',
    url: (port) => at(`127.0.0.1:${port}`),
    answer: { code: '28P01', text: 'password authentication failed for user "app"' },
    exit: 1,
    says: new RegExp(
      `password authentication failed for user "app": correct user and password in ${where}`,
    ),
  },
  {
    what: 'the role may not connect',
    url: (port) => at(`127.0.0.1:${port}`),
    answer: { code: '28000', text: 'role "app" does not exist' },
    exit: 1,
    says: new RegExp(`role "app" does not exist: correct the user in ${where}, or let`),
  },
  {
    what: 'the database does not exist',
    url: (port) => at(`127.0.0.1:${port}`),
    answer: { code: '3D000', text: 'database "app" does not exist' },
    exit: 1,
    says: new RegExp(`database "app" does not exist: create it, or correct the name in ${where}`),
  },
  {
    what: 'the password is missing',
    url: (port) => `postgresql://app@127.0.0.1:${port}/app`,
    answer: 'asks',
    exit: 1,
    says: new RegExp(`the database asks for a password: put one into ${where}`),
  },
  {
    what: 'the connection is refused',
    url: () => at('127.0.0.1:1'),
    exit: 1,
    says: new RegExp(
      `no database answers at 127\\.0\\.0\\.1:1 \\(ECONNREFUSED\\): is PostgreSQL running there\\? If not, correct host and port in ${where}`,
    ),
  },
  {
    what: 'the host does not exist',
    url: () => at('no-such-host.invalid'),
    exit: 1,
    says: new RegExp(
      `the host no-such-host\\.invalid is not known here: correct the host in ${where}`,
    ),
  },
  {
    what: 'the socket does not exist',
    url: () => `postgresql://app:${secret}@/app?host=/no/such/directory`,
    exit: 1,
    says: new RegExp(`no database answers at the socket /no/such/directory/\\S+: .*${where}`),
  },
  {
    what: 'the address cannot be parsed',
    url: () => at('127.0.0.1:port'),
    exit: 2,
    says: /DATABASE_URL\) cannot be read: give postgresql:\/\/user.*special characters/,
  },
  ...['#', '/', '?'].map((special) => ({
    what: `a ${special} in the password is not encoded`,
    url: () => `postgresql://app:${special}${secret}@127.0.0.1/app`,
    exit: 2,
    says: /DATABASE_URL\) cannot be read: .*# as %23/,
  })),
  {
    what: 'the scheme is wrong',
    url: () => `mysql://app:${secret}@127.0.0.1/app`,
    exit: 2,
    says: /DATABASE_URL\) begins with mysql:\/\/: give postgresql:\/\/user/,
  },
  {
    what: 'the address is not a URL',
    url: () => `mysql//app:${secret}@127.0.0.1/app`,
    exit: 2,
    says: /DATABASE_URL\) is not the address of a database: give postgresql:\/\/user/,
  },
  {
    what: 'the address is empty',
    url: () => '',
    exit: 2,
    says: /DATABASE_URL\) is empty: give postgresql:\/\/user/,
  },
];

describe('a database that cannot be reached', () => {
  it.each(unreachable)(
    'is reported in one line with the remedy, and without the password, when $what',
    { timeout: 120_000 },
    async ({ url, answer, exit, says }) => {
      const port = await listen(answer);
      const config = writeConfig(
        '{ destinations: { a: handler(() => {}) }, routes: [], relay: { startupWaitMs: 0 } }',
      );
      const commands = [
        ['status'],
        ['migrate', 'up'],
        ['enqueue', 'a'],
        ['dev'],
        ['start', '--config', config],
      ];
      const environment = { DATABASE_URL: url(port), WAYBILL_LOG_LEVEL: 'warn' };
      const check = async (args: string[]) => {
        const { code, stdout, stderr } = await cli(args, { environment });
        expect({ code, stderr }, args.join(' ')).toEqual({
          code: exit,
          stderr: expect.stringMatching(new RegExp(`^waybill: .*${says.source}.*\n$`)) as unknown,
        });
        expect(stdout + stderr, args.join(' ')).not.toContain(secret);
      };
      await Promise.all(commands.map(check));
    },
  );

  it('is also reported when its address comes from a file; an empty file is not an address', async () => {
    const file = path.join(temporaryDirectory(), 'address');
    const status = async (address: string) => {
      writeFileSync(file, address);
      return cli(['status'], { environment: { DATABASE_URL_FILE: file } });
    };
    const refused = await status(`${at('127.0.0.1:1')}\n`);
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^waybill: no database answers at 127\.0\.0\.1:1/) as unknown,
    });
    expect(refused.stderr).not.toContain(secret);
    expect(await status('\n')).toMatchObject({
      code: 2,
      stderr: `waybill: DATABASE_URL_FILE is "${file}", which is empty: write the address into it\n`,
    });
  });
});

describe('an address', () => {
  it.each([
    [at('h:5432'), 'postgresql://app:…@h:5432/app'],
    [`postgresql://h/app?user=app&password=${secret}`, 'postgresql://h/app?user=app&password=…'],
    ['postgresql://app@h/app', 'postgresql://app@h/app'],
    ['postgresql://h:5432/app', 'postgresql://h:5432/app'],
    [`postgresql://app:${secret}@/app?host=/tmp`, 'postgresql://app:…@/app?host=/tmp'],
    [`postgresql://app:a@b/${secret}@h/app`, 'postgresql://app:…@h/app'],
    ['/var/run/postgresql app', '/var/run/postgresql app'],
  ])('is printed without its password: %s', (address, printed) => {
    expect(withoutPassword(address)).toBe(printed);
  });

  it.each([
    'postgres://h/app',
    'postgresql://app:a%40b@h:5432/app?sslmode=verify-full',
    'postgresql:///app?host=/var/run/postgresql',
    'postgresql://app:a@/app?host=/var/run/postgresql',
    'postgresql://%2Fvar%2Frun%2Fpostgresql/app',
    'socket:/var/run/postgresql?db=app',
    '/var/run/postgresql app',
  ])('that the driver accepts is accepted: %s', (address) => {
    expect(checkAddress('database.url', address)).toBe(address);
  });
});

/** The part of the protocol that asks for a password and then refuses it. */
async function listen(answer: Unreachable['answer']): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const turns =
      answer === undefined || answer === 'asks'
        ? [authentication(10, 'SCRAM-SHA-256\0\0'), authentication(11, 'r=x,s=eA==,i=1')]
        : [authentication(3), message('E', `SFATAL\0C${answer.code}\0M${answer.text}\0\0`)];
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', () => socket.write(turns.shift() ?? ''));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

function authentication(kind: number, text = ''): Buffer {
  return message('R', `\0\0\0${String.fromCodePoint(kind)}${text}`);
}

/** A letter, a length and that many bytes. */
function message(letter: string, body: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(body.length + 4);
  return Buffer.concat([Buffer.from(letter), length, Buffer.from(body, 'latin1')]);
}
