// The doctor's findings about retention: the floors of the owner, and whether a login may do the maintenance.

import { expect, it } from 'vitest';

import { installRoles } from '../../src/database/roles.js';
import { expectWell, follow, look, ownServer } from '../support/doctor.js';

const server = ownServer();

it('P16 the floors are shown, and a missing floor for all topics is found', async () => {
  await server.query(
    `INSERT INTO ${server.quoted}.retention_floors (topic, namespace, attempts_days, dedupe_keys_days)
     VALUES ('payment.*', 'billing', 2555, 'infinity')`,
  );
  expect(await look(server, 'retention_floors')).toMatchObject({
    state: 'ok',
    found:
      '*: messages for 1 days, attempts for 1 days, dead letters for 7 days, dedupe keys for 30 days; payment.* in billing: attempts for 2555 days, dedupe keys for ever',
  });
  await server.query(`DELETE FROM ${server.quoted}.retention_floors WHERE topic = '*'`);
  const finding = await look(server, 'retention_floors');
  expect(finding).toMatchObject({ state: 'warning' });
  expect(finding.found).toContain('only payment.* in billing');
  await follow(server, finding);
  await expectWell(server, 'retention_floors');
});

it('P16 relays without the role maintenance are found if no other login has it', async () => {
  await expectWell(server, 'maintenance_unassigned');
  await installRoles({ url: server.url, schema: server.schema }, 'm_');
  await expectWell(server, 'maintenance_unassigned');
  await server.query('CREATE ROLE some_relay LOGIN IN ROLE m_relay');
  const finding = await look(server, 'maintenance_unassigned');
  expect(finding).toMatchObject({
    state: 'warning',
    found:
      'no login has the role maintenance: relays (some_relay) leave what has outlived its retention',
    paste: ['GRANT "m_maintenance" TO "some_relay";'],
  });
  await follow(server, finding);
  expect(await look(server, 'maintenance_unassigned')).toMatchObject({
    state: 'ok',
    found: 'some_relay',
  });
});

it('P16 a schema whose roles were installed before there was one for maintenance is found', async () => {
  await server.query(`REVOKE m_maintenance FROM some_relay;
    DELETE FROM ${server.quoted}.roles WHERE role = 'maintenance'`);
  const finding = await look(server, 'maintenance_unassigned');
  expect(finding.paste).toEqual([expect.stringMatching(/^waybill roles install/)]);
});
