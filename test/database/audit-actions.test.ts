// Every action of an operator in SQL leaves a record: who, what, on what, how many. The command line and the API are in
// audit-interfaces.test.ts, general properties of records in audit-record.test.ts.

import { describe, expect, it } from 'vitest';

import { testDatabase } from '../support/postgres.js';
import { actionsOnMessages } from './audit/actions-on-messages.js';
import { actionsOnSettings } from './audit/actions-on-settings.js';
import { Records } from './audit/recorded.js';

const db = testDatabase();
const audit = new Records(db);

/** Each with the function that records it, so that none is forgotten. */
const actions = { ...actionsOnMessages(audit), ...actionsOnSettings(audit) };

describe('every action', () => {
  it.each(Object.entries(actions))('W8 N13 %s leaves its record', async (_name, check) => {
    await check();
  });

  it('W8 every recording function has a test here, and every function with an actor records', async () => {
    const { rows } = await db.query<{ name: string; records: boolean }>(
      `SELECT p.proname AS name, p.prosrc LIKE '%record_action(%' AS records FROM pg_proc p
        WHERE p.pronamespace = $1::regnamespace AND p.proname <> 'record_action'
          AND (p.prosrc LIKE '%record_action(%' OR p.proargnames && '{actor,p_actor}')
        ORDER BY 1`,
      [db.quoted],
    );
    const direct = rows.filter(({ records }) => records).map(({ name }) => name);
    const others = [
      // tested with start_replay
      'replay_step',
      'resume_replay',
      // tested with restore_dead_letters, which calls it
      'restore_some_letters',
      // tested with apply_definitions and define_destination, which call them
      'leave_destinations',
      'record_routes',
      'store_destination',
    ];
    const through = new Set(['apply_definitions', 'define_destination', 'restore_dead_letters']);
    const tried = Object.keys(actions).filter((name) => !through.has(name));
    expect(direct).toEqual([...tried, ...others].toSorted());
    expect(rows.filter(({ records }) => !records).map(({ name }) => name)).toEqual(
      // through save_endpoint and set_paused
      [
        'add_endpoint',
        'change_endpoint',
        // and retry_dead_letters and retry_now
        'recover_endpoint',
        'reseal_endpoint',
        // through restore_some_letters
        'restore_dead_letters',
        'retire_endpoint_secrets',
        'rotate_endpoint',
        'set_endpoint_enabled',
        // each batch of it is recorded
        'start_job',
      ],
    );
  });
});
