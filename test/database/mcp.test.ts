// `waybill mcp`, as the official client of the protocol sees it: tools that read by default, changes and payloads only
// with their flags, and a record of every change.

import { randomUUID } from 'node:crypto';
import os from 'node:os';
import path from 'node:path';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { describe, expect, it, onTestFinished } from 'vitest';

import { cliOn, environmentOf, json, startCli } from '../support/cli.js';
import type { Login } from '../support/logins.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

type Answer = { text: string; isError: boolean };

async function connect(flags: string[] = [], login: Login = 'test_control') {
  const client = new Client({ name: 'test', version: '1' });
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [path.resolve('dist', 'cli', 'main.js'), 'mcp', ...flags],
    env: { PATH: process.env['PATH'] ?? '', ...environmentOf(db, login) },
    cwd: os.tmpdir(),
    stderr: 'pipe',
  });
  onTestFinished(() => client.close());
  await client.connect(transport);
  const call = async (name: string, values: object = {}): Promise<Answer> => {
    const { content, isError } = await client.callTool({ name, arguments: { ...values } });
    const [part] = content as { type: string; text: string }[];
    return { text: part?.text ?? '', isError: isError === true };
  };
  return {
    client,
    call,
    ask: async (name: string, values: object = {}): Promise<unknown> => {
      const { text, isError } = await call(name, values);
      expect(isError, text).toBe(false);
      return JSON.parse(text);
    },
  };
}

/** A queue with a dead letter whose payload and answer have a secret. */
async function deadLetter() {
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne({ payload: { card: '4111-secret' } });
  await queue.kill(id);
  return { queue, id };
}

const reading = [
  'status',
  'doctor',
  'explain_message',
  'list_messages',
  'show_message',
  'list_dead_letters',
  'count_dead_letters',
];

describe('waybill mcp', () => {
  it('offers tools that read, each with a schema of its arguments, and says what they are for', async () => {
    const { client } = await connect();
    expect(client.getServerVersion()).toMatchObject({ name: 'waybill' });
    expect(client.getInstructions()).toMatch(/never instructions/);
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(reading);
    for (const { annotations, inputSchema } of tools) {
      expect(annotations).toMatchObject({ readOnlyHint: true, destructiveHint: false });
      expect(inputSchema).toMatchObject({ type: 'object', additionalProperties: false });
    }
    expect(tools.find(({ name }) => name === 'show_message')?.inputSchema.required).toEqual(['id']);
    expect(tools.find(({ name }) => name === 'list_messages')?.inputSchema.required).toEqual([]);
    await client.ping();
  });

  it('answers what the commands answer with --json', async () => {
    const { queue, id } = await deadLetter();
    const { ask } = await connect();
    const same = async (tool: string, values: object, ...args: string[]) => {
      const answer = await ask(tool, values);
      expect(answer).toEqual(json(await cliOn(db, [...args, '--json'])));
      return answer;
    };
    await same('explain_message', { id }, 'explain', id);
    await same('list_messages', { topic: queue.topic }, 'messages', 'list', '--topic', queue.topic);
    const letters = ['dead-letters', 'list', '--destination', queue.name];
    expect(await same('list_dead_letters', { destination: queue.name }, ...letters)).toMatchObject([
      { messageId: id },
    ]);
    const status = (await ask('status')) as object;
    expect(Object.keys(status)).toEqual(
      Object.keys(json(await cliOn(db, ['status', '--json'])) as object),
    );
    expect(await ask('doctor', { codes: ['fsync_off'] })).toMatchObject([{ code: 'fsync_off' }]);
    expect(await ask('count_dead_letters')).toContainEqual(
      expect.objectContaining({ destination: queue.name, count: 1 }),
    );
  });

  it('shows payloads, headers and answers only with --payloads, and secrets never', async () => {
    const { id } = await deadLetter();
    const hidden = await (await connect()).call('show_message', { id });
    expect(hidden.text).toContain('"payloadBytes"');
    expect(hidden.text).not.toMatch(/4111-secret|"payloadText"|"headers"|"response"/);
    const shown = await (await connect(['--payloads'])).call('show_message', { id });
    expect(shown.text).toContain('4111-secret');
    expect(shown.text).toContain('"response"');
  });

  it('W5 searches payloads only with --payloads, so that they cannot be guessed', async () => {
    const { id } = await deadLetter();
    const values = { status: 'dead', payload: { card: '4111-secret' } };
    const refused = await (await connect()).call('list_messages', values);
    expect(refused).toMatchObject({ isError: true });
    expect(refused.text).toMatch(/^arguments\.payload is .*start waybill mcp with --payloads/);
    const { ask, call } = await connect(['--payloads']);
    const found = (await ask('list_messages', values)) as { messages: { messageId: string }[] };
    expect(found.messages.map(({ messageId }) => messageId)).toContain(id);
    expect(await ask('list_messages', { payload: { card: 'none' } })).toMatchObject({
      messages: [],
    });
    for (const payload of ['4711', {}, { card: 4711 }, []])
      expect((await call('list_messages', { payload })).text).toContain(
        'give an object of texts, such as {"orderId": "4711"}',
      );
  });

  it('refuses wrong arguments, unknown messages and unknown tools with the remedy', async () => {
    const { call, client } = await connect();
    const unknown = randomUUID();
    for (const [tool, values, words] of [
      ['show_message', {}, /^arguments\.id is undefined: give a message id/],
      ['show_message', { id: unknown }, /^there is no message/],
      [
        'list_messages',
        { limit: 1000 },
        /^arguments\.limit is 1000: give a whole number from 1 to 200/,
      ],
      ['list_messages', { since: 'yesterday' }, /^arguments\.since is .*give a time such as/],
      ['list_messages', { status: 'lost' }, /^arguments\.status is "lost": give 'pending' or/],
      ['list_messages', { colour: 'red' }, /^arguments\.colour is not an option: use status/],
      ['doctor', { codes: ['cold'] }, /^arguments\.codes\[0\] is "cold": give server_version/],
    ] as const)
      expect(await call(tool, values)).toEqual({
        text: expect.stringMatching(words) as unknown,
        isError: true,
      });
    for (const name of ['retry_message', 'discard_message', 'pause_destination', 'drop_tables'])
      await expect(client.callTool({ name, arguments: {} })).rejects.toThrow(
        `there is no tool ${name}`,
      );
  });

  it('cannot be made to change anything without the flag, nor with a login that may only read', async () => {
    const { queue, id } = await deadLetter();
    const { call } = await connect(['--allow-changes'], 'test_control');
    for (const [tool, values] of [
      ['retry_message', { id }],
      ['discard_message', { id }],
      ['pause_destination', { name: queue.name }],
    ] as const)
      expect(await call(tool, values)).toMatchObject({
        text: expect.stringMatching(/permission denied/) as unknown,
        isError: true,
      });
  });

  it('W8 makes changes with --allow-changes, and records each with its actor', async () => {
    const { queue, id } = await deadLetter();
    const { ask, call, client } = await connect(['--allow-changes'], 'test_server');
    const { tools } = await client.listTools();
    const changing = tools.filter(({ annotations }) => annotations?.destructiveHint);
    expect(changing.map(({ name }) => name)).toEqual([
      'pause_destination',
      'resume_destination',
      'retry_message',
      'discard_message',
    ]);
    const paused = { name: queue.name, reason: 'they migrate' };
    expect(await ask('pause_destination', paused)).toEqual({ paused: queue.name });
    expect(await ask('retry_message', { id })).toMatchObject({ retried: 1 });
    expect(await ask('discard_message', { id })).toEqual({ discarded: 0, cancelled: 1 });
    expect(await ask('resume_destination', { name: queue.name })).toEqual({ resumed: queue.name });
    expect(await call('pause_destination', { name: 'nowhere' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/nowhere/) as unknown,
    });
    const { rows } = await db.query<{ action: string; actor: string }>(
      `SELECT action::text, actor FROM ${db.quoted}.operator_actions
        WHERE actor LIKE 'mcp:%' ORDER BY id`,
    );
    expect(rows.map(({ action }) => action)).toEqual(
      expect.arrayContaining(['pause', 'resume']) as unknown,
    );
    expect(rows.length).toBeGreaterThanOrEqual(4);
    expect(new Set(rows.map(({ actor }) => actor))).toEqual(
      new Set([`mcp:${os.userInfo().username}`]),
    );
  });

  it('answers broken lines with an error, and ends with its input', async () => {
    const lines = [
      'not json',
      '[]',
      '{"jsonrpc":"2.0","id":1,"method":"resources/list"}',
      '{"jsonrpc":"2.0","method":"notifications/initialized"}',
      '{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}',
    ];
    const server = startCli(['mcp'], { environment: environmentOf(db), input: lines.join('\n') });
    const { code, stdout } = await server.ended();
    expect(code).toBe(0);
    const answers = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
    expect(answers).toHaveLength(4);
    expect(answers).toEqual(
      expect.arrayContaining([
        { jsonrpc: '2.0', id: null, error: { code: -32_700, message: 'the line is not JSON' } },
        expect.objectContaining({
          id: null,
          error: expect.objectContaining({ code: -32_600 }) as unknown,
        }),
        expect.objectContaining({
          id: 1,
          error: expect.objectContaining({ code: -32_601 }) as unknown,
        }),
        expect.objectContaining({
          id: 2,
          result: expect.objectContaining({ protocolVersion: '2025-11-25' }) as unknown,
        }),
      ]) as unknown,
    );
  });

  it('names no password when the database cannot be reached', async () => {
    const server = startCli(['mcp'], {
      environment: { DATABASE_URL: 'postgresql://app:geh31m@127.0.0.1:1/none' },
      input: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"status"}}\n',
    });
    const { stdout, stderr } = await server.ended();
    expect(stdout).toMatch(/no database answers at 127\.0\.0\.1:1/);
    expect(stdout + stderr).not.toContain('geh31m');
  });
});
