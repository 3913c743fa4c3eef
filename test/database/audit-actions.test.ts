// Everything that an operator can do in SQL leaves a record: who, what, to what, how many. What is done by the command
// line and the API is in audit-interfaces.test.ts, and what is true of all records in audit-record.test.ts.

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

  it('W8 every function that records has its test here, and every one with an actor records', async () => {
    const { rows } = await db.query<{ name: string; records: boolean }>(
      `SELECT p.proname AS name, p.prosrc LIKE '%record_action(%' AS records FROM pg_proc p
        WHERE p.pronamespace = $1::regnamespace AND p.proname <> 'record_action'
          AND (p.prosrc LIKE '%record_action(%' OR p.proargnames && '{actor,p_actor}')
        ORDER BY 1`,
      [db.quoted],
    );
    const direct = rows.filter(({ records }) => records).map(({ name }) => name);
    // these two are tried with start_replay
    const others = ['replay_step', 'resume_replay'];
    expect(direct).toEqual([...Object.keys(actions), ...others].toSorted());
    expect(rows.filter(({ records }) => !records).map(({ name }) => name)).toEqual(
      // through save_endpoint and set_paused
      [
        'add_endpoint',
        'change_endpoint',
        'reseal_endpoint',
        'retire_endpoint_secrets',
        'rotate_endpoint',
        'set_endpoint_enabled',
        // what it does is recorded batch by batch
        'start_job',
      ],
    );
  });
});
