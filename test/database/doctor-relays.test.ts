// The doctor's findings about relays: versions, definitions, what they cannot do and what they left behind. Relays are
// real where possible; states that need time or another version are written to the tables.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { retry } from '../../src/core/outcome.js';
import { version } from '../../src/core/version.js';
import { expectWell, follow, look, untilState } from '../support/doctor.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, send, startRelay } from '../support/relay.js';

const db = testDatabase();

/** A heartbeat as a relay of another version sends it. */
async function beat(
  fields: {
    name?: string;
    version?: string;
    problems?: string[];
    destinations?: string[];
    breakers?: object;
  } = {},
): Promise<string> {
  const id = randomUUID();
  await db.query(`SELECT ${db.quoted}.heartbeat($1, $2, $3, 'same', $4, $5, $6)`, [
    id,
    fields.name ?? 'other',
    fields.version ?? version,
    fields.destinations ?? [],
    JSON.stringify(fields.breakers ?? {}),
    fields.problems ?? [],
  ]);
  return id;
}

async function signOff(id: string): Promise<void> {
  await db.query(`SELECT ${db.quoted}.sign_off($1)`, [id]);
}

/** Makes the relay's last heartbeat this old. */
async function silentFor(id: string, time: string): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.relays SET heartbeat_at = clock_timestamp() - $2::interval WHERE id = $1`,
    [id, time],
  );
}

describe('versions', () => {
  it.each([
    ['older', '0.1.0', /^npm install waybill@/],
    ['newer', '99.0.0', /^waybill migrate up/],
  ])('a living relay that is %s than the schema is found', async (_what, other, paste) => {
    await expectWell(db, 'relay_versions');
    const same = await beat();
    await expectWell(db, 'relay_versions');
    const id = await beat({ name: 'left-behind', version: other });
    const finding = await look(db, 'relay_versions');
    expect(finding).toMatchObject({
      state: 'warning',
      found: `the schema is of Waybill ${version}; relay left-behind runs ${other}`,
      paste: [expect.stringMatching(paste)],
    });
    await silentFor(id, '61 seconds');
    await expectWell(db, 'relay_versions');
    await signOff(id);
    await signOff(same);
  });
});

it('two relays with different definitions are found, until one is stopped', async () => {
  const first = await startRelay(db, {
    destinations: { crm: handler(() => {}) },
    relay: { name: 'first' },
  });
  await expectWell(db, 'relay_definitions');
  const second = await startRelay(db, {
    destinations: { crm: handler(() => {}), billing: handler(() => {}) },
    relay: { name: 'second' },
  });
  const finding = await look(db, 'relay_definitions');
  expect(finding).toMatchObject({ state: 'warning' });
  expect(finding.found).toMatch(
    /2 different configurations: \w+ of default \(first: crm\); \w+ of default \(second: crm, billing\)/,
  );
  expect(finding.found).not.toContain('ten minutes');
  expect(finding.remedy).toContain('set application to a name of its own in each configuration');
  await db.query(
    `UPDATE ${db.quoted}.relays SET started_at = started_at - interval '20 minutes' WHERE name = 'first'`,
  );
  expect((await look(db, 'relay_definitions')).found, 'a deploy').not.toContain('ten minutes');
  await db.query(`UPDATE ${db.quoted}.relays SET started_at = started_at - interval '11 minutes'`);
  expect((await look(db, 'relay_definitions')).found).toContain(
    'for more than ten minutes, relays of default have had different destinations',
  );
  await second.stop();
  await expectWell(db, 'relay_definitions');
  await first.stop();
});

it('a problem that a living relay reports is found', async () => {
  await expectWell(db, 'relay_problems');
  const id = await beat({ name: 'keyless', problems: ['2 endpoints cannot be served'] });
  expect(await look(db, 'relay_problems')).toMatchObject({
    state: 'warning',
    found: 'relay keyless: 2 endpoints cannot be served',
  });
  await silentFor(id, '61 seconds');
  await expectWell(db, 'relay_problems');
  await signOff(id);
  await expectWell(db, 'relay_problems');
});

it('an open circuit breaker is found', async () => {
  await expectWell(db, 'breakers_open');
  const relay = await startRelay(db, {
    destinations: {
      failing: handler(() => retry({ code: 'down' }), {
        breaker: { failures: 1, openMs: 60_000 },
      }),
    },
    relay: { name: 'careful' },
  });
  await send(db, numbered('failing', 3));
  const finding = await untilState(db, 'breakers_open', 'warning');
  expect(finding.found).toMatch(/^open: failing at relay careful;/);
  await follow(db, finding);
  await relay.stop();
  await expectWell(db, 'breakers_open');
  const id = await beat({ breakers: { failing: {} } });
  expect(await look(db, 'breakers_open')).toMatchObject({ state: 'warning' });
  await silentFor(id, '61 seconds');
  await expectWell(db, 'breakers_open');
  await signOff(id);
});

describe('destinations without a relay', () => {
  it('a routed one is found; once something was due for a minute it is an error', async () => {
    await db.query(`DELETE FROM ${db.quoted}.routes`);
    await expectWell(db, 'destinations_unserved');
    const queue = await makeQueue(db);
    expect(await look(db, 'destinations_unserved')).toMatchObject({
      state: 'warning',
      found: `no living relay serves ${queue.name}`,
    });
    const id = await beat({ destinations: [queue.name] });
    await expectWell(db, 'destinations_unserved');
    await silentFor(id, '61 seconds');
    await queue.enqueue(2);
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET available_at = clock_timestamp() - interval '2 minutes' WHERE destination_id = $1`,
      [queue.id],
    );
    const finding = await look(db, 'destinations_unserved');
    expect(finding).toMatchObject({ state: 'error' });
    expect(finding.found).toMatch(
      new RegExp(`no living relay serves ${queue.name} \\(2 waiting, due for 2 min`),
    );
    await signOff(id);
    await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [queue.name]);
    await db.query(`DELETE FROM ${db.quoted}.routes`);
  });

  it('a message with a key counts too', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(1, { key: 'order-1' });
    await queue.claim();
    const { rows } = await db.query(
      `UPDATE ${db.quoted}.leases SET expires_at = clock_timestamp() - interval '1 second' RETURNING id`,
    );
    expect(rows).toHaveLength(1);
    await db.query(`SELECT ${db.quoted}.reap()`);
    await db.query(
      `UPDATE ${db.quoted}.lanes SET available_at = clock_timestamp() - interval '2 minutes' WHERE destination_id = $1`,
      [queue.id],
    );
    expect(await look(db, 'destinations_unserved')).toMatchObject({ state: 'error' });
    await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [queue.name]);
    await db.query(`DELETE FROM ${db.quoted}.routes`);
  });

  it('a destination that is paused, served by workers, or recently drained is not a finding', async () => {
    const [byWorkers, paused, drained] = [
      await makeQueue(db, { kind: 'worker' }),
      await makeQueue(db),
      await makeQueue(db),
    ];
    expect(byWorkers.name).not.toBe(paused.name);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [paused.name]);
    await db.query(
      `SELECT ${db.quoted}.add_statistics(ARRAY[$1::int], ARRAY[1], ARRAY[0], ARRAY[0])`,
      [drained.id],
    );
    await expectWell(db, 'destinations_unserved');
    await drained.enqueue(1);
    await expectWell(db, 'destinations_unserved');
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET available_at = clock_timestamp() - interval '2 minutes' WHERE destination_id = $1`,
      [drained.id],
    );
    expect(await look(db, 'destinations_unserved')).toMatchObject({ state: 'error' });
    await db.query(`DELETE FROM ${db.quoted}.routes`);
  });
});

it('expired leases that no reaper ends are found, and ended by the remedy', async () => {
  await expectWell(db, 'leases_expired');
  const queue = await makeQueue(db);
  await queue.enqueue(3);
  await queue.claim();
  await expectWell(db, 'leases_expired');
  await db.query(
    `UPDATE ${db.quoted}.leases SET expires_at = clock_timestamp() - interval '2 minutes' WHERE destination_id = $1`,
    [queue.id],
  );
  const finding = await look(db, 'leases_expired');
  expect(finding).toMatchObject({ state: 'error' });
  expect(finding.found).toMatch(/^1 lease has expired, the first 2 min.* the 3 deliveries in it$/);
  await follow(db, finding);
  await expectWell(db, 'leases_expired');
  expect(await queue.waiting()).toHaveLength(3);
});

describe("the database's clock", () => {
  it('messages from the future are found', async () => {
    await expectWell(db, 'clock_set_back');
    const { rows } = await db.query<{ id: string }>(
      `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
       SELECT 2, ${db.quoted}.id_at(now() + interval '2 hours'), now(), pg_current_xact_id(), 'default', 'a', '{}' RETURNING id`,
    );
    const finding = await look(db, 'clock_set_back');
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toMatch(/was set back by (2 h|1 h 59 min) or more/);
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [rows[0]?.id]);
    await expectWell(db, 'clock_set_back');
  });

  it('a heartbeat from the future is found', async () => {
    const id = await beat();
    await silentFor(id, '-1 hour');
    expect(await look(db, 'clock_set_back')).toMatchObject({ state: 'warning' });
    await signOff(id);
    await expectWell(db, 'clock_set_back');
  });
});
