// When a replica is used: it goes away and comes back, lags too far, is another database, or has its queries cancelled.
// Reads continue in every case, and the change is reported.

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it, onTestFinished } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { Replica } from '../../src/features/replicas/replica.js';
import type { ReadFrom } from '../../src/features/replicas/replica.js';
import {
  parsePosition,
  positionText,
  readPosition,
  unreachable,
} from '../../src/features/replicas/wal-position.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import { look, ownPrograms } from '../support/doctor.js';
import { urlAs } from '../support/logins.js';
import { only } from '../support/only.js';
import { databaseUrl } from '../support/postgres.js';
import { openReplica, replicatedDatabase } from '../support/replication.js';
import type { TestReplica } from '../support/replication.js';
import { serveDatabase } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = replicatedDatabase({ max_standby_streaming_delay: '100ms' });
const timeoutMs = 20_000;

const whichIs = async (database: Database): Promise<boolean> =>
  only(await database.query<{ standby: boolean }>('ask', 'SELECT pg_is_in_recovery() AS standby'))
    .standby;

/** Where reads come from, by the header and in fact. */
async function readsFrom({ replica }: TestReplica): Promise<ReadFrom> {
  const { answer, from } = await replica.read(whichIs);
  expect(answer).toBe(from === 'replica');
  return from;
}

async function untilReadFrom(opened: TestReplica, from: ReadFrom): Promise<void> {
  await waitFor(async () => (await readsFrom(opened)) === from, { what: `the ${from}`, timeoutMs });
}

describe('a replica that goes away', () => {
  it('N9 is replaced by the primary at once, and used again when it is back; each change is reported once', async () => {
    const opened = await openReplica(db);
    const ask = await (await serveDatabase(db, opened)).as('read');
    const metric = async (name: string) => {
      const { status, body } = await ask('GET', '/metrics');
      expect(status).toBe(200);
      return Number(
        new RegExp(`^outbox_replica_${name} (.*)$`, 'm').exec(String(body['text']))?.[1],
      );
    };
    expect(await readsFrom(opened)).toBe('replica');
    expect(await metric('usable')).toBe(1);
    expect(await metric('lag_seconds')).toBeLessThan(5);
    const before = await metric('fallbacks_total');
    await db.standby.stop('immediate');
    try {
      // the first request finds out
      expect(await readsFrom(opened)).toBe('primary');
      await waitFor(() => opened.changes.length === 2, {
        what: 'the change to be reported',
        timeoutMs,
      });
      await opened.replica.probe();
      await opened.replica.probe();
      expect(opened.changes).toHaveLength(2);
      expect(opened.changes[1]).toMatchObject({ usable: false });
      expect(opened.changes[1]?.reason).toContain('it cannot be read: ');
      expect(await metric('usable')).toBe(0);
      expect(await metric('fallbacks_total')).toBeGreaterThan(before);
      const { source } = (await ask('GET', '/api/overview')).body as { source: object };
      expect(source).toMatchObject({ from: 'primary', ageMs: null });
      expect((source as { reason: string }).reason).toContain('it cannot be read: ');
    } finally {
      await db.standby.restart();
    }
    await untilReadFrom(opened, 'replica');
    expect(opened.changes.map(({ usable }) => usable)).toEqual([true, false, true]);
    expect(await metric('usable')).toBe(1);
  });

  it.skipIf(!hasProc())('does not delay reads after it has stopped answering', async () => {
    const opened = await openReplica(db);
    process.kill(db.standby.processId, 'SIGSTOP');
    try {
      // sessions are separate processes, and answer; new ones, and so the next check, need the stopped one
      for (const pid of sessions()) process.kill(pid, 'SIGSTOP');
      const { from } = await opened.replica.read(whichIs);
      expect(from).toBe('primary');
    } finally {
      for (const pid of sessions()) process.kill(pid, 'SIGCONT');
      process.kill(db.standby.processId, 'SIGCONT');
    }
    await untilReadFrom(opened, 'replica');
  });
});

/** Sessions are found and stopped through it. */
function hasProc(): boolean {
  if (process.platform === 'linux') return true;
  console.warn(
    `A test of a replica that stops answering is left out: it needs the /proc of Linux, and this is ${process.platform}.`,
  );
  return false;
}

/** The standby's sessions, as the operating system lists them, because it cannot answer itself. */
function sessions(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const parent = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${name}/status`, 'utf8'))?.[1];
        const words = readFileSync(`/proc/${name}/cmdline`, 'utf8');
        return Number(parent) === db.standby.processId && words.includes('test_server')
          ? [Number(name)]
          : [];
      } catch {
        return [];
      }
    });
}

describe('a replica is not used if it', () => {
  const reasons = async (replicaUrl: string): Promise<string> => {
    const opened = await openReplica(db, { replicaUrl });
    expect(await readsFrom(opened)).toBe('primary');
    const { found, state } = await look(db, 'replica_unusable', { database: { replicaUrl } });
    expect({ state, found }).toEqual({
      state: 'warning',
      found: `the replica is not used: ${opened.replica.status.reason}`,
    });
    return only(opened.changes).reason ?? '';
  };

  it('is the primary itself', async () => {
    expect(await reasons(urlAs(db.url, 'test_server'))).toContain('it is not a standby');
  });

  it('is another database of the same server', async () => {
    await db.query('CREATE DATABASE other');
    onTestFinished(async () => void (await db.query('DROP DATABASE other WITH (FORCE)')));
    await db.caughtUp();
    const url = databaseUrl(urlAs(db.standby.url, 'test_server'), 'other');
    expect(await reasons(url)).toBe('it is a standby of another database');
  });

  it('is a standby of another server, whose database has the same name and number', async () => {
    const other = await startPostgres(ownPrograms());
    onTestFinished(() => other.remove());
    await other.stop();
    writeFileSync(path.join(other.dataDirectory, 'standby.signal'), '');
    await other.restart();
    expect(await reasons(other.url)).toBe('it is a standby of another database');
  });

  it('does not let the login see the schema', async () => {
    await db.query('CREATE ROLE stranger LOGIN');
    await db.caughtUp();
    const url = new URL(db.standby.url);
    url.username = 'stranger';
    expect(await reasons(url.href)).toContain('its login may not use the schema');
  });

  it('has a wrong password, which is never shown', async () => {
    const url = new URL(db.standby.url);
    url.username = 'nobody_here';
    url.password = 'hunter2';
    const reason = await reasons(url.href);
    expect(reason).toContain('nobody_here');
    expect(reason).not.toContain('hunter2');
  });

  it('is further behind than allowed, until it has caught up', async () => {
    const opened = await openReplica(db, { maxReplicaLagMs: 3000 });
    expect(await readsFrom(opened)).toBe('replica');
    await db.pauseReplay();
    await db.query('CREATE TABLE moved_on (id int)');
    await untilReadFrom(opened, 'primary');
    expect(opened.replica.status.reason).toMatch(/^it is \d+ s behind/);
    await waitFor(() => opened.changes.length === 2, { what: 'the change to be reported' });
    await db.resumeReplay();
    await untilReadFrom(opened, 'replica');
  });

  it('a replica that is idle because nothing happens is not behind', async () => {
    const opened = await openReplica(db, { maxReplicaLagMs: 3000 });
    const lastCommit = `SELECT pg_last_xact_replay_timestamp()::text AS at,
        clock_timestamp() - pg_last_xact_replay_timestamp() > interval '4 seconds' AS "isOld"`;
    const readCommit = async () =>
      only(await db.onStandby<{ at: string; isOld: boolean }>(lastCommit));
    await db.query('SELECT pg_switch_wal()');
    const found = await waitFor(
      async () => {
        const { at, isOld } = await readCommit();
        if (!isOld) return undefined;
        await opened.replica.probe();
        const { status } = opened.replica;
        // the server commits by itself now and then: such a measurement is repeated
        return (await readCommit()).at === at && status;
      },
      { what: 'a while without a commit', timeoutMs },
    );
    expect(found).toMatchObject({ usable: true, reason: null });
  });

  it("the age of a replica is measured by the primary's clock if its log contains no time", async () => {
    const { database } = await openReplica(db);
    const hourMs = 3_600_000;
    const clockIsAhead = new Proxy(database, {
      get(object, name) {
        if (name !== 'query') return Reflect.get(object, name) as unknown;
        return async (what: string, sql: string, values: unknown[]) => {
          const rows = await object.query<Record<string, unknown>>(what, sql, values);
          for (const row of rows) if (typeof row['clockMs'] === 'number') row['clockMs'] += hourMs;
          return rows;
        };
      },
    });
    await db.caughtUp();
    await db.pauseReplay();
    await db.query('CREATE TABLE not_replayed (id int)');
    const ageOn = async (primary: Database) => {
      const settings = { connections: 1, applicationName: 'waybill test replica' };
      const replica = new Replica(primary, settings);
      onTestFinished(() => replica.close());
      await replica.probe();
      return replica.status.lagMs ?? Number.NaN;
    };
    const [ageMs, aheadMs] = [await ageOn(database), await ageOn(clockIsAhead)];
    expect(ageMs).toBeLessThan(hourMs / 2);
    expect(aheadMs).toBeGreaterThan(hourMs);
    expect(aheadMs).toBeLessThan(1.5 * hourMs);
  });
});

it('a primary that is away does not make the replica unusable, until it is too old', async () => {
  const opened = await openReplica(db, { maxReplicaLagMs: 3000 });
  await db.primary.stop('immediate');
  try {
    await opened.replica.probe();
    expect(await readsFrom(opened)).toBe('replica');
    await waitFor(() => !opened.replica.status.usable, { what: 'it to be too old', timeoutMs });
    await expect(opened.replica.read(whichIs)).rejects.toThrow('ECONNREFUSED');
  } finally {
    await db.primary.restart();
  }
  await untilReadFrom(opened, 'replica');
});

describe('a query that the standby cancels', () => {
  /** Reads that are cancelled on the replica this many times; returns where they were tried. */
  async function cancelled(times: number): Promise<{ tried: ReadFrom[]; from: ReadFrom }> {
    const table = `public.fought_over_${times}`;
    await db.query(`CREATE TABLE ${table} (id int); GRANT SELECT ON ${table} TO test_server`);
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    await db.caughtUp();
    const { replica } = await openReplica(db);
    const tried: ReadFrom[] = [];
    const { from } = await replica.read(async (database, where) => {
      tried.push(where);
      if (tried.length > times) return whichIs(database);
      const reading = database.query('hold', `SELECT pg_sleep(20) FROM ${table}`);
      reading.catch(() => undefined);
      await waitFor(
        async () =>
          (
            await db.onStandby(
              `SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(20) FROM ${table}%' AND state = 'active' AND pid <> pg_backend_pid()`,
            )
          ).length > 0,
        { what: 'the reading to begin' },
      );
      await db.query(`TRUNCATE ${table}; INSERT INTO ${table} VALUES (1)`);
      await expect(reading).rejects.toMatchObject({ code: '40001' });
      await db.caughtUp();
      return reading.then(() => true);
    });
    return { tried, from };
  }

  it('is retried once', async () => {
    expect(await cancelled(1)).toEqual({ tried: ['replica', 'replica'], from: 'replica' });
  });

  it('is then sent to the primary', async () => {
    expect(await cancelled(2)).toEqual({
      tried: ['replica', 'replica', 'primary'],
      from: 'primary',
    });
  });

  it('that takes too long is not sent to the primary as well', async () => {
    const { replica } = await openReplica(db, { statementTimeoutMs: 500 });
    const tried: ReadFrom[] = [];
    const reading = replica.read((database, from) => {
      tried.push(from);
      return database.query('take long', 'SELECT pg_sleep(20)');
    });
    await expect(reading).rejects.toMatchObject({ code: '57014' });
    expect(tried).toEqual(['replica']);
  });

  it('that writes is refused there, and done by the primary', async () => {
    const { replica } = await openReplica(db, { url: db.url, replicaUrl: db.standby.url });
    const work = async (database: Database) => {
      await database.query('write', 'CREATE TEMPORARY TABLE written (id int)');
    };
    expect((await replica.read(work)).from).toBe('primary');
  });
});

describe('a position', () => {
  it('travels as text', () => {
    for (const position of [0n, 0x16_b3_74_d8_48n, unreachable])
      expect(parsePosition(positionText(position))).toBe(position);
    expect(positionText(0x16_b3_74_d8_48n)).toBe('16/B374D848');
    for (const text of [undefined, '', '1', '1/', '/1', '1/123456789', 'g/0', '0/0 '])
      expect(parsePosition(text)).toBeUndefined();
  });

  it('is reached also where a page of the log has just begun', async () => {
    const { database, replica } = await openReplica(db);
    const client = await db.connect();
    const begun = async () => {
      await db.query('SELECT pg_logical_emit_message(false, $1, $2)', ['waybill test', 'moves on']);
      await db.query('SELECT pg_switch_wal()');
      const after = await readPosition(database);
      const { rows } = await client.query<{ at: string }>(
        `SELECT (pg_current_wal_insert_lsn() - '0/0')::text AS at`,
      );
      // the server writes by itself now and then: then the position was not at the beginning
      return BigInt(only(rows).at) - after === 40n && after;
    };
    // a bounded number of times: each one writes a segment
    let after: bigint | false = false;
    for (let tries = 0; tries < 5 && after === false; tries += 1) after = await begun();
    if (after === false)
      throw new Error('no page of the log has begun where its position was read');
    const { from } = await replica.read(whichIs, { after, maxWaitMs: 5000 });
    expect(from).toBe('replica');
  });
});
