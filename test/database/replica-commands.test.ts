// Read-only commands with a replica: they read from it, --primary bypasses it, and an unavailable one is reported and
// replaced by the primary. Also a relay whose port reads from it.

import { describe, expect, it } from 'vitest';

import { sealNow } from '../support/audit.js';
import { cli, json, startCli, writeConfig } from '../support/cli.js';
import type { Finished } from '../support/cli.js';
import { expectWell, look } from '../support/doctor.js';
import { urlAs } from '../support/logins.js';
import type { Login } from '../support/logins.js';
import { makeQueue } from '../support/outbox.js';
import { replicatedDatabase } from '../support/replication.js';
import { settleDelivered } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = replicatedDatabase();

function environment(login: Login = 'test_auditor'): Record<string, string> {
  return {
    DATABASE_URL: urlAs(db.url, login),
    DATABASE_REPLICA_URL: urlAs(db.standby.url, login),
    WAYBILL_SCHEMA: db.schema,
  };
}

async function run(...args: string[]): Promise<Finished> {
  return cli(args, { environment: environment() });
}

const notUsed = 'from the primary';

describe('commands that only read', () => {
  it('N9 show what the replica has, and with --primary what the primary has', async () => {
    const queue = await makeQueue(db);
    const old = await queue.enqueueOne();
    await db.caughtUp();
    await db.pauseReplay();
    const young = await queue.enqueueOne();
    const list = ['messages', 'list', '--topic', queue.topic, '--json'];
    const ids = async (...more: string[]) => {
      const { messages } = json(await run(...list, ...more)) as {
        messages: { messageId: string }[];
      };
      return messages.map(({ messageId }) => messageId);
    };
    expect(await ids()).toEqual([old]);
    expect(await ids('--primary')).toEqual([young, old]);
    // a message that is not there yet is not reported as unknown
    for (const command of [['messages', 'show'], ['explain']]) {
      const found = await run(...command, young);
      expect([command, found.code]).toEqual([command, 0]);
      expect(found.stderr).toContain('from the primary: the replica did not answer');
      expect((await run(...command, old)).stderr).not.toContain(notUsed);
    }
    await waitFor(
      async () => /as of \d+ s ago, from the replica/.test((await run(...list)).stderr),
      {
        what: 'it to say how old it is',
      },
    );
  });

  it('all work on a standby, with the rights of an auditor', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    await settleDelivered(db, await queue.claim());
    await sealNow(db);
    await db.caughtUp();
    for (const args of [
      ['status'],
      ['messages', 'list'],
      ['messages', 'show', id],
      ['explain', id],
      ['audit', 'list'],
      ['audit', 'verify'],
    ]) {
      const { code, stderr } = await run(...args);
      expect([args, code, stderr.includes(notUsed)]).toEqual([args, 0, false]);
    }
  });

  it('audit verify does not report heads as forged that the replica has yet to receive', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(1);
    await settleDelivered(db, await queue.claim());
    await sealNow(db);
    await db.caughtUp();
    await db.pauseReplay();
    await queue.enqueue(1);
    await settleDelivered(db, await queue.claim());
    await sealNow(db);
    const { stdout: heads } = await run('audit', 'heads');
    const { code, stderr, stdout } = await cli(['audit', 'verify', '--heads', '-'], {
      environment: environment(),
      input: heads,
    });
    expect([code, stdout]).toEqual([0, expect.stringContaining('matches the exported heads')]);
    expect(stderr).toContain(notUsed);
  });

  it('a tail follows the replica, also when it was away', async () => {
    const queue = await makeQueue(db);
    const tail = startCli(['tail', '--topic', queue.topic], { environment: environment() });
    await tail.says('following');
    const first = await queue.enqueueOne();
    await tail.says(`enqueued   ${first}`);
    expect(tail.stderr).not.toContain(notUsed);
    await db.standby.stop('immediate');
    try {
      await tail.says('from the primary: the replica is not used: it cannot be read');
      const second = await queue.enqueueOne();
      await tail.says(`enqueued   ${second}`);
    } finally {
      await db.standby.restart();
    }
    await tail.says('from the replica again');
    const third = await queue.enqueueOne();
    await tail.says(`enqueued   ${third}`);
    tail.process.kill('SIGINT');
    const { code, stdout } = await tail.ended();
    expect([code, stdout.trimEnd().split('\n').length]).toEqual([0, 3]);
  });

  it('without it they say so, and use the primary', async () => {
    const replica = new URL(db.standby.url);
    replica.port = '1';
    replica.password = 'hunter2';
    const { code, stderr } = await cli(['status'], {
      environment: { ...environment(), DATABASE_REPLICA_URL: replica.href },
    });
    expect(code).toBe(0);
    expect(stderr).toContain('from the primary: the replica is not used: it cannot be read');
    expect(stderr).not.toContain('hunter2');
    const wrong = await cli(['status'], {
      environment: { ...environment(), DATABASE_REPLICA_URL: 'mysql://user:hunter2@host/db' },
    });
    expect([wrong.code, wrong.stderr]).toEqual([
      2,
      expect.stringContaining('database.replicaUrl (DATABASE_REPLICA_URL) begins with mysql://'),
    ]);
    expect(wrong.stderr).not.toContain('hunter2');
  });
});

it('the doctor checks the primary, and the replica for its lag', async () => {
  const database = { replicaUrl: db.standby.url };
  await expectWell(db, 'replica_unusable');
  await expectWell(db, 'replica_unusable', { database });
  await db.pauseReplay();
  await db.query('CREATE TABLE unheard_of (id int)');
  const found = await waitFor(
    async () => {
      const result = await look(db, 'replica_unusable', {
        database: { ...database, maxReplicaLagMs: 1000 },
      });
      return result.state === 'warning' && result;
    },
    { what: 'the replica to be behind' },
  );
  expect(found.found).toMatch(/^the replica is not used: it is \d+ s behind/);
  for (const sql of found.paste) await db.query(sql);
  expect(await look({ ...db, url: db.standby.url }, 'server_standby')).toMatchObject({
    state: 'error',
  });
});

it('waybill start reads from the replica, and logs when it starts and stops to do so', async () => {
  const config = writeConfig(
    `{ destinations: { crm: handler(() => {}) }, routes: [{ topic: 'user.*', to: 'crm' }], server: { port: 0, authentication: 'none' } }`,
  );
  const relay = startCli(['start', '--config', config], {
    environment: {
      ...environment('test_relay'),
      DATABASE_SERVER_URL: urlAs(db.url, 'test_server'),
      DATABASE_REPLICA_URL: urlAs(db.standby.url, 'test_server'),
    },
  });
  await relay.says(/"msg":"serving"/);
  await relay.says(/"msg":"replica_used"/);
  const url = /"url":"(http:[^"]+)"/.exec(relay.stderr)?.[1] ?? '';
  const source = async () => (await fetch(`${url}/api/relays`)).headers.get('waybill-read-from');
  expect(await source()).toBe('replica');
  await db.standby.stop('immediate');
  try {
    await relay.says(/"reason":"it cannot be read[^\n]*"msg":"replica_unused"/);
    expect(await source()).toBe('primary');
  } finally {
    await db.standby.restart();
  }
  await relay.says(/replica_unused[^]*"msg":"replica_used"/);
  relay.process.kill('SIGTERM');
  expect((await relay.ended()).code).toBe(0);
});
