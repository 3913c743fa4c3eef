// A running relay whose schema is migrated past its version stops by itself, releases what it holds and reports why; so
// does a drain. A shard that refuses the relay does not affect the others.

import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { refusalOr } from '../../src/database/versions.js';
import { handler } from '../../src/destinations/handler.js';
import { RelayTooOldError } from '../../src/core/errors.js';
import { version } from '../../src/core/version.js';
import { environmentOf, startCli, writeConfig } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';
import type { TestDatabase } from '../support/postgres.js';
import {
  makeRelay,
  numbered,
  waitLimitMs,
  places,
  send,
  startRelay,
  untilPlaces,
} from '../support/relay.js';
import { makeShardedRelay, shardsOf } from '../support/shards.js';
import { waitFor } from '../support/wait.js';

const [db, eu, us] = [testDatabase(), testDatabase(), testDatabase()];

const works = async (on: TestDatabase, oldest: string | null) => {
  await on.query(
    `UPDATE ${on.quoted}.applied_files SET works_with = $1 WHERE file = 'migrations/0001_storage.sql'`,
    [oldest],
  );
};

/** Changes the schema as a later version would; reverted when the test ends. */
async function migratePast(on: TestDatabase): Promise<void> {
  onTestFinished(() => works(on, null));
  await works(on, '99.0.0');
}

const refusal = `works with relays of Waybill 99.0.0 and newer, and this relay is Waybill ${version}: upgrade it`;

describe('a relay that the schema refuses while it runs', () => {
  it('releases what it holds, reports it and stops', async () => {
    const aborted: string[] = [];
    const destination = handler(
      async (message, { signal }) => {
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
        aborted.push(message.id);
        throw new Error('aborted');
      },
      { concurrency: 1 },
    );
    const started = await startRelay(db, {
      destinations: { held: destination },
      relay: { stopDeadlineMs: 500 },
    });
    const { relay } = started;
    const ids = await send(db, numbered('held', 4));
    await untilPlaces(db, 'held', { leased: 4 });
    expect(relay.refusal).toBeUndefined();
    await migratePast(db);
    expect(await started.event('relay_refused')).toMatchObject({
      relay: relay.name,
      error: expect.stringContaining(refusal) as string,
    });
    const ended = await relay.ended;
    expect(ended).toBeInstanceOf(RelayTooOldError);
    expect(ended).toMatchObject({ code: 'relay_too_old' });
    expect(started.of('relay_stopped')).toHaveLength(1);
    expect(started.of('trouble')).toEqual([]);
    expect(aborted).toEqual(ids.slice(0, 1));
    expect(await places(db, 'held')).toMatchObject({ waiting: 4, leased: 0, dead: 0 });
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.relays WHERE 'held' = ANY (destinations)`,
    );
    expect(rows).toEqual([]);
  });

  it('ends a drain too, which fails with the reason', async () => {
    onTestFinished(() => works(db, null));
    const limits = { maxMessages: 10, maxMs: waitLimitMs, maintain: true };
    const drain = () =>
      makeRelay(db, {
        destinations: {
          drained: handler(() => works(db, '99.0.0').then(() => new Promise<void>(() => {}))),
        },
        relay: { stopDeadlineMs: 500 },
      }).relay.drain(limits);
    expect(await drain()).toMatchObject({ processed: 0, finished: true });
    await send(db, numbered('drained', 1));
    await expect(drain()).rejects.toMatchObject({ code: 'relay_too_old' });
    expect(await places(db, 'drained')).toMatchObject({ leased: 0, delivered: 0 });
  });

  it('is distinguished from other unsupported features of PostgreSQL', async () => {
    const failed = (using: string) =>
      db
        .query(`DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '0A000' ${using}; END $$`)
        .catch((error: unknown) => error);
    const other = await failed('');
    expect(other).toBeInstanceOf(pg.DatabaseError);
    expect(refusalOr(other)).toBe(other);
    expect(refusalOr(await failed(`, COLUMN = 'works_with'`))).toBeInstanceOf(RelayTooOldError);
  });

  it('ends waybill start with exit code 8, which is not ready meanwhile', async () => {
    const config = writeConfig(`{
      destinations: { slow: handler(() => new Promise(() => console.error('in flight'))) },
      routes: [{ topic: 'slow', to: 'slow' }],
      relay: { stopDeadlineMs: 2000 },
      server: { port: 0 },
    }`);
    const child = startCli(['start', '--config', config], { environment: environmentOf(db) });
    await child.says('"msg":"serving"');
    const [, url = ''] = /"url":"([^"]+)","msg":"serving"/.exec(child.stderr) ?? [];
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    await send(db, numbered('slow', 1));
    await child.says('in flight');
    await migratePast(db);
    const readiness = async () => {
      const answer = await fetch(`${url}/readyz`);
      return answer.status === 503 && answer.json();
    };
    const answer = await waitFor(readiness, { what: 'not ready', timeoutMs: waitLimitMs });
    expect(answer).toEqual({ ready: false });
    const { code, stderr } = await child.ended(waitLimitMs);
    expect(code).toBe(8);
    expect(stderr).toMatch(/"level":40.*"msg":"relay_refused"/);
    expect(stderr).toContain('"msg":"relay_stopped"');
    expect(stderr).toMatch(new RegExp(`^waybill: the schema .* ${refusal}$`, 'm'));
    expect(await places(db, 'slow')).toMatchObject({ leased: 0 });
  });
});

describe('a shard that refuses', () => {
  it('does not affect the others, is served again when it accepts, and ends all only with all', async () => {
    const { relay, event, events } = makeShardedRelay({
      shards: shardsOf({ eu, us }),
      destinations: { past: handler(() => undefined) },
    });
    let everywhere: RelayTooOldError | undefined;
    void relay.refusedByAll.then((error) => (everywhere = error));
    await relay.start();
    await migratePast(us);
    await event('us', 'relay_refused');
    expect(relay.isRunning('us')).toBe(false);
    expect(relay.refusalOf('us')?.message).toContain(refusal);
    await event('us', 'shard_unavailable');
    expect(relay.refusalOf('us')?.message).toContain(refusal);
    await send(us, numbered('past', 1));
    await send(eu, numbered('past', 1));
    await untilPlaces(eu, 'past', { delivered: 1 });
    expect(await places(us, 'past')).toMatchObject({ waiting: 1 });
    expect([relay.isRunning('eu'), relay.refusalOf('eu'), everywhere]).toEqual([
      true,
      undefined,
      undefined,
    ]);
    expect(events.some((seen) => seen.shard === 'eu' && seen.event.name === 'relay_refused')).toBe(
      false,
    );
    await works(us, null);
    await untilPlaces(us, 'past', { delivered: 1 });
    await waitFor(() => relay.isRunning('us'), { what: 'us to be served', timeoutMs: waitLimitMs });
    expect(relay.refusalOf('us')).toBeUndefined();
    await migratePast(us);
    await migratePast(eu);
    expect((await relay.refusedByAll).message).toContain(refusal);
  });
});
