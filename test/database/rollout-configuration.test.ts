// What a configuration may do to rollouts: files of several versions come and go, and none of them may silently change
// which system sends a message.

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne } from '../support/relay.js';
import { Rollouts } from '../support/rollouts.js';

const db = testDatabase();
const rollouts = new Rollouts(db);

describe('the configuration', () => {
  const state = async (name: string) =>
    only(
      (
        await db.query<{ percent: string; shadow: boolean }>(
          `SELECT percent, shadow FROM ${db.quoted}.rollouts WHERE name = $1`,
          [name],
        )
      ).rows,
    );

  it('W6 creates a new rollout at 0 %, and never changes it afterwards', async () => {
    await rollouts.define('kept');
    expect(await state('kept')).toEqual({ percent: '0.00', shadow: false });
    await rollouts.set('kept', 25.5);
    await rollouts.define('kept');
    expect(await state('kept')).toEqual({ percent: '25.50', shadow: false });
  });

  it('W6 starts at 100 % if everything was sent so far', async () => {
    await rollouts.define('grown', null);
    await rollouts.define('grown');
    expect(await state('grown')).toEqual({ percent: '100.00', shadow: false });
  });

  it('W6 may drop a rollout at 100 % only', async () => {
    await rollouts.define('ending');
    await rollouts.set('ending', 60);
    await expect(rollouts.define('ending', null)).rejects.toThrow(
      'the rollout "ending" is gone from its route "ending" and stands at 60.00 %: bring it to 100 first',
    );
    await rollouts.set('ending', 100);
    await rollouts.define('ending', null);
    expect(await rollouts.decide('ending', 'k')).toBe('new');
    const id = await sendOne(db, { topic: 'ending' });
    expect(await rollouts.routedTo('ending')).toEqual(new Set([id]));
  });

  it('W6 may not drop a rollout below 100 % for a route with another topic', async () => {
    await rollouts.defineRoutes('widened', [
      { topic: 'widened.*', to: 'widened', rollout: 'widened' },
    ]);
    await expect(
      rollouts.defineRoutes('widened', [{ topic: 'widened.registered', to: 'widened' }]),
    ).rejects.toThrow(
      'the rollout "widened" is gone from its route "widened.*" and stands at 0.00 %',
    );
  });

  it('W6 may not drop it on one route while another keeps it', async () => {
    const kept = { topic: 'halved.a', to: 'halved', rollout: 'halved' };
    const other = { topic: 'halved.b', to: 'halved', rollout: 'halved' };
    await rollouts.defineRoutes('halved', [kept, other]);
    for (const percent of [0, 60]) {
      await rollouts.set('halved', percent);
      for (const rollout of [null, 'halved-2'])
        await expect(
          rollouts.defineRoutes('halved', [kept, { ...other, rollout }]),
        ).rejects.toThrow(
          `the rollout "halved" is gone from its route "halved.b" and stands at ${percent}.00 %: bring it to 100`,
        );
    }
    await rollouts.set('halved', 100);
    await rollouts.defineRoutes('halved', [kept, { ...other, rollout: null }]);
  });

  it('W6 may not remove a route whose rollout says that it sends', async () => {
    const first = { topic: 'taken.a', to: 'taken', rollout: 'taken' };
    const second = { topic: 'taken.b', to: 'taken', rollout: 'taken' };
    await rollouts.defineRoutes('taken', [first, second]);
    for (const percent of [60, 100]) {
      await rollouts.set('taken', percent);
      for (const [routes, topic] of [
        [[], 'taken.a'],
        [[first], 'taken.b'],
      ] as const)
        await expect(rollouts.defineRoutes('taken', routes)).rejects.toThrow(
          `the route "${topic}" is gone and its rollout "taken" stands at ${percent}.00 %, which neither system would send: bring it to 0 first`,
        );
    }
    await rollouts.set('taken', 60);
    await rollouts.defineRoutes('taken', [first, { ...second, topic: 'taken.*' }]);
    await rollouts.set('taken', 0);
    await rollouts.defineRoutes('taken', [first]);
    await rollouts.defineRoutes('taken', []);
  });

  it('W6 old and new files may alternate while neither changes which system sends', async () => {
    const route = { topic: 'rolling', to: 'rolling' };
    await rollouts.defineRoutes('rolling', [route]);
    for (let n = 0; n < 2; n += 1) {
      await rollouts.defineRoutes('rolling', [{ ...route, rollout: 'rolling' }]);
      await rollouts.defineRoutes('rolling', [route]);
    }
    expect(await rollouts.decide('rolling', 'k')).toBe('new');
    for (let n = 0; n < 2; n += 1) {
      await rollouts.defineRoutes('rolled-back', [
        { topic: 'rolled-back', to: 'rolled-back', rollout: 'back' },
      ]);
      await rollouts.defineRoutes('rolled-back', []);
    }
    expect(await rollouts.decide('back', 'k')).toBe('old');
  });

  it('W6 may drop a rollout at 0 % with its routes: the other system sends everything', async () => {
    await rollouts.define('withdrawn');
    await rollouts.defineRoutes('withdrawn', []);
    expect(await rollouts.decide('withdrawn', 'k')).toBe('old');
    await expect(rollouts.set('withdrawn', 50)).rejects.toThrow(
      'no route has the rollout "withdrawn" any more',
    );
  });

  it('W6 a rollout without routes is not changed: its destination gets everything', async () => {
    await rollouts.define('released');
    await rollouts.set('released', 100);
    await rollouts.define('released', null);
    await expect(rollouts.set('released', 0)).rejects.toMatchObject({ code: '22023' });
    expect(await rollouts.decide('released', 'k')).toBe('new');
    await rollouts.define('released');
    await rollouts.set('released', 0);
    expect(await rollouts.decide('released', 'k')).toBe('old');
  });

  it('W6 a change while the file drops the rollout waits, and is refused', async () => {
    await rollouts.define('raced');
    await rollouts.stopAll();
    await rollouts.set('raced', 100);
    const client = await db.connect();
    await client.query('BEGIN');
    const definitions = {
      destinations: [
        { name: 'raced', kind: 'handler', maxAttempts: 10, retryBaseMs: 1000, retryMaxMs: 300_000 },
      ],
      routes: [{ topic: 'raced', to: 'raced' }],
    };
    await client.query(`SELECT ${db.quoted}.apply_definitions($1, p_prune => true)`, [
      JSON.stringify(definitions),
    ]);
    await expect(rollouts.set('raced', 50)).rejects.toMatchObject({ code: '55P03' });
    await client.query('ROLLBACK');
  });

  it('W6 a change based on outdated routes is refused', async () => {
    await rollouts.define('frozen');
    await rollouts.set('frozen', 100);
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await client.query(`SELECT FROM ${db.quoted}.routes`);
    await rollouts.define('frozen', null);
    await expect(
      client.query(`SELECT ${db.quoted}.set_rollout('frozen', 50)`),
    ).rejects.toMatchObject({ code: '25001' });
    await client.query('ROLLBACK');
    expect(await rollouts.decide('frozen', 'k')).toBe('new');
  });

  it('W6 a route that changes from one rollout at 100 % to another keeps sending everything', async () => {
    await rollouts.define('renamed', 'renamed-1');
    await rollouts.set('renamed-1', 100);
    await rollouts.define('renamed', 'renamed-2');
    expect(await state('renamed-2')).toEqual({ percent: '100.00', shadow: false });
    expect(await rollouts.decide('renamed-1', 'k')).toBe('new');
  });

  it('W6 a route that has sent everything does not get a rollout below 100 %', async () => {
    const divided = { topic: 'divided', to: 'divided', rollout: 'divided' };
    const whole = { topic: 'whole', to: 'divided' };
    await rollouts.defineRoutes('divided', [divided, whole]);
    await rollouts.set('divided', 10);
    await expect(
      rollouts.defineRoutes('divided', [divided, { ...whole, rollout: 'divided' }]),
    ).rejects.toThrow('the route "whole" has sent everything so far, and the rollout "divided"');
    await rollouts.set('divided', 100);
    await rollouts.defineRoutes('divided', [divided, { ...whole, rollout: 'divided' }]);
  });
});
