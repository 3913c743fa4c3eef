// Commands that only read ask the replica, if one is configured, and say so where it matters: when what they show is
// not of this moment, and when the primary was asked instead. `--primary` leaves the replica alone.

import type { Command } from 'commander';

import type { Database, DatabaseOptions } from '../database/connection.js';
import { Replica } from '../database/replica.js';
import type { ReadOptions, ReplicaStatus } from '../database/replica.js';
import { inDatabase, plainDatabaseOptions, sharedOptions } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { note } from './output.js';

export type ReadingFlags = SharedFlags & { primary?: boolean };

/** From this age on it is worth a word. */
const notedMs = 1000;

export function readingOptions(command: Command): Command {
  return sharedOptions(command).option(
    '--primary',
    'ask the primary, also where a replica is configured (DATABASE_REPLICA_URL)',
  );
}

/** Runs a command that only reads. The work may be done twice, the second time on the primary. */
export async function withReadableDatabase<T>(
  flags: ReadingFlags,
  work: (database: Database) => Promise<T>,
  options: Pick<ReadOptions<T>, 'isAnswer'> = {},
): Promise<T> {
  return readFrom(await plainDatabaseOptions(flags), flags, work, options);
}

/** The same in a database that is known. */
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

/** Undefined if there is none, or none is wanted. */
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
