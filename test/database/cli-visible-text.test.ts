// Terminals and logs show names and error texts of other systems with escapes for invisible characters. The JSON output
// of commands uses JSON escapes, so a program that parses it gets the original text.

import { expect, it } from 'vitest';

import { cliOn, environmentOf, json, startCli, writeConfig } from '../support/cli.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { send } from '../support/relay.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const turned = '\u202egpj.exe\u2066\u009b31m';
const shown = String.raw`\u202egpj.exe\u2066\u009b31m`;
const unseen = /[\u061c\u0080-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

it('P13 control characters of a message are escaped in every command that shows it', async () => {
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne({ key: `k${turned}`, tenantId: turned, payload: turned });
  await settle(db, await queue.claimOne(), [
    { id, outcome: 'reject', errorCode: 'bad', errorMessage: turned, response: turned },
  ]);
  const commands = [
    ['messages', 'show', id],
    ['messages', 'list', '--topic', queue.topic],
    ['explain', id],
    ['dead-letters', 'list'],
  ];
  for (const command of commands) {
    const { stdout, stderr } = await cliOn(db, command);
    expect(`${stdout}${stderr}`, command[0]).not.toMatch(unseen);
    expect(stdout, command[0]).toContain(shown);
    expect((await cliOn(db, [...command, '--json'])).stdout, command[0]).not.toMatch(unseen);
  }
  const message = json(await cliOn(db, ['messages', 'show', id, '--json']));
  expect(message).toMatchObject({ tenantId: turned });
  const since = new Date(Date.now() - 3_600_000).toISOString();
  for (const flags of [[], ['--json']]) {
    const tail = startCli(['tail', '--since', since, '--topic', queue.topic, ...flags], {
      environment: environmentOf(db),
    });
    await tail.says(/dead/);
    tail.process.kill('SIGINT');
    const { stdout } = await tail.ended();
    expect(stdout).not.toMatch(unseen);
    expect(stdout).toContain(shown);
  }
});

it('P13 control characters of an error are escaped in the log of a relay', async () => {
  const config = writeConfig(
    `{ destinations: { turned: handler(() => { throw new Error(${JSON.stringify(turned)}); }) }, routes: [{ topic: 'turned', to: 'turned' }], server: null }`,
  );
  const relay = startCli(['start', '--verbose', '--config', config], {
    environment: environmentOf(db),
  });
  await relay.says('relay_started');
  await send(db, [{ topic: 'turned' }]);
  await relay.says('delivery_failed');
  relay.process.kill('SIGTERM');
  const { stderr } = await relay.ended();
  expect(stderr).not.toMatch(unseen);
  expect(stderr).toContain(shown);
  const line = stderr.split('\n').find((text) => text.includes('delivery_failed')) ?? '';
  expect(JSON.parse(line)).toMatchObject({ outcome: { message: turned } });
});
