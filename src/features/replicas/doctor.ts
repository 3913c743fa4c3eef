// Doctor check of the replica for requests that only read: whether it can be used, and how far behind it is.

import { duration, ok, warning } from '../../doctor/check.js';
import type { Check } from '../../doctor/check.js';
import { Replica } from './replica.js';

const replicaUnusable: Check = {
  code: 'replica_unusable',
  title: 'the replica can be read',
  finds:
    'Warning when the replica of `DATABASE_REPLICA_URL` cannot be reached, is no standby, is a standby of another database, has a login that may not use the schema, is of unknown age, or is further behind than `database.maxReplicaLagMs`.',
  needs: 'schema',
  run: async ({ database }) => {
    if (database.options.replicaUrl === undefined) return ok('none is configured');
    const replica = new Replica(database, { connections: 1, applicationName: 'waybill doctor' });
    try {
      await replica.probe();
      const { reason, lagMs } = replica.status;
      return reason === null
        ? ok(`it is ${duration((lagMs ?? 0) / 1000)} behind`)
        : warning(
            `the replica is not used: ${reason}`,
            'The primary answers instead. Repair the replica, correct DATABASE_REPLICA_URL (database.replicaUrl), or remove the setting. The lag of each standby:',
            ['SELECT application_name, state, replay_lag FROM pg_stat_replication;'],
          );
    } finally {
      await replica.close();
    }
  },
};

export const replicaChecks = [replicaUnusable];
