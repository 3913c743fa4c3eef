// Replica reads of the command line: commands that only read use the replica, if one is configured. They report when
// the shown data is old, and when the primary answered instead. `--primary` always reads from the primary.

import type { Command } from 'commander';

import type { Database, DatabaseOptions } from '../../database/connection.js';
import { Replica } from './replica.js';
import type { ReadOptions, ReplicaStatus } from './replica.js';
import { inDatabase, plainDatabaseOptions, sharedOptions } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { note } from '../../cli/output.js';

export type ReadingFlags = SharedFlags & { primary?: boolean };

/** Data older than this is reported as old. */
const notedMs = 1000;

export function readingOptions(command: Command): Command {
  return sharedOptions(command).option(
    '--primary',
    'read from the primary, even if a replica is configured (DATABASE_REPLICA_URL)',
  );
}

/** Runs a command that only reads. The work may run twice: on the replica, and then on the primary. */
export async function withReadableDatabase<T>(
  flags: ReadingFlags,
  work: (database: Database) => Promise<T>,
  options: Pick<ReadOptions<T>, 'isAnswer'> = {},
): Promise<T> {
  return readFrom(await plainDatabaseOptions(flags), flags, work, options);
}

/** Does the same for a given database. */
export async function readFrom<T>(
  databaseOptions: DatabaseOptions,
  flags: ReadingFlags,
  work: (database: Database) => Promise<T>,
  options: Pick<ReadOptions<T>, 'isAnswer'> = {},
): Promise<T> {
  return inDatabase(databaseOptions, async (database) => {
    const replica = replicaOf(database, flags);
    if (replica === undefined) return work(database);
    try {
      await replica.probe();
      const { usable, lagMs } = replica.status;
      const { answer, from } = await replica.read(work, options);
      if (from === 'replica' && (lagMs ?? 0) >= notedMs)
        note(`as of ${Math.round((lagMs ?? 0) / 1000)} s ago, from the replica`);
      if (from === 'primary' && usable)
        note('from the primary: the replica did not answer, or not as it should');
      return answer;
    } finally {
      await replica.close();
    }
  });
}

/** Undefined if no replica is configured, or if `--primary` was given. */
export function replicaOf(database: Database, flags: ReadingFlags): Replica | undefined {
  if (flags.primary || database.options.replicaUrl === undefined) return undefined;
  let wasAway = false;
  const onChange = ({ usable, reason }: ReplicaStatus): void => {
    if (!usable) note(`from the primary: the replica is not used: ${reason}`);
    else if (wasAway) note('from the replica again');
    wasAway = !usable;
  };
  return new Replica(database, { connections: 1, applicationName: 'waybill cli', onChange });
}
