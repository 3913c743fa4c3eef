// waybill status: is it well? What waits, what is dead, who is running.

import { Command } from 'commander';

import { readDestinations, readHealth, readRelays } from '../database/reports.js';
import type { DestinationReport } from '../database/reports.js';
import { readNeededVersion } from '../database/versions.js';
import { readWatches } from '../database/watches.js';
import { destinationRow } from './destinations.js';
import type { Database } from '../database/connection.js';
import { overEachShard } from './each-shard.js';
import { version } from '../version.js';
import { note, print, printTable } from './output.js';
import { readingOptions, readFrom } from './replica-options.js';
import type { ReadingFlags } from './replica-options.js';

export function statusCommand(): Command {
  return readingOptions(new Command('status'))
    .description('show health, destinations and relays')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill status\n  $ waybill status --json | jq .destinations',
    )
    .action((flags: ReadingFlags) =>
      overEachShard(flags, (options) => readFrom(options, flags, readStatus), printStatus),
    );
}

async function readStatus(database: Database) {
  return {
    health: await readHealth(database),
    destinations: await readDestinations(database),
    relays: await readRelays(database),
    watches: await readWatches(database),
    /** Set when relays of this version are refused. */
    neededVersion: await readNeededVersion(database),
  };
}

function printStatus({
  health,
  destinations,
  relays,
  watches,
  neededVersion,
}: Awaited<ReturnType<typeof readStatus>>): void {
  printTable(health, ['metric', 'value', 'description']);
  print('');
  const { shown, quiet } = withoutQuietEndpoints(destinations);
  printTable(shown.map(destinationRow), [
    'name',
    'kind',
    'configured',
    'paused',
    'waiting',
    'retrying',
    'processing',
    'dead',
    'why',
    'breaker',
  ]);
  if (quiet > 0) print(`(and ${quiet} endpoints that have nothing to do: endpoints list)`);
  print('');
  printTable(relays, ['name', 'version', 'configuration', 'heartbeatSecondsAgo', 'destinations']);
  for (const { alarm } of health) if (alarm !== null) note(`warning: ${alarm}`);
  if (neededVersion !== null)
    note(
      `warning: the schema works with relays of Waybill ${neededVersion} and newer, and refuses those of this one, ${version}: upgrade it`,
    );
  const living = relays.filter((relay) => relay.heartbeatSecondsAgo < 60);
  if (new Set(living.map((relay) => relay.configuration)).size > 1) {
    note('warning: relays run with different configurations');
  }
  const unrouted = health.find(({ metric }) => metric === 'unrouted')?.value ?? 0;
  if (unrouted > 0)
    note(`note: ${unrouted} messages had no route; if one wants them now: waybill route-unrouted`);
  for (const gone of destinations.filter(
    (destination) => !destination.configured && destination.waiting > 0,
  )) {
    note(
      `warning: ${gone.name} is no longer configured and ${gone.waiting} deliveries wait for it: move_deliveries or discard_deliveries`,
    );
  }
  for (const { table, topic, problem } of watches.filter((watch) => watch.problem !== null))
    note(`warning: the watch ${topic} of ${table} is broken: ${problem}`);
}

/** There may be thousands of endpoints: those that are on, and for which nothing waits or is dead, are only counted. */
function withoutQuietEndpoints(destinations: readonly DestinationReport[]): {
  shown: DestinationReport[];
  quiet: number;
} {
  const isBusy = ({ origin, configured, paused, waiting, processing, dead }: DestinationReport) =>
    origin === 'file' || (configured && paused) || waiting + processing + dead > 0;
  const quiet = destinations.filter((each) => !isBusy(each) && each.configured);
  return { shown: destinations.filter(isBusy), quiet: quiet.length };
}
