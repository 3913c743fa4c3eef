// waybill status: shows the health of the outbox, its destinations, relays and applications, and parts of features.

import { Command } from 'commander';

import { readApplications } from '../features/applications/report.js';
import type { ApplicationReport } from '../features/applications/report.js';
import { readDestinations, readHealth, readRelays } from '../listing/reports.js';
import type { DestinationReport } from '../listing/reports.js';
import { readNeededVersion } from '../database/versions.js';
import { features } from '../features/all.js';
import type { StatusPart } from '../features/feature.js';
import { destinationRow } from './destinations.js';
import type { Database } from '../database/connection.js';
import { overEachShard } from '../features/shards/each-shard.js';
import { version } from '../core/version.js';
import { note, print, printTable } from './output.js';
import { readingOptions, readFrom } from '../features/replicas/flags.js';
import type { ReadingFlags } from '../features/replicas/flags.js';

export function statusCommand(): Command {
  return readingOptions(new Command('status'))
    .description('show health, destinations, relays and applications')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill status\n  $ waybill status --json | jq .destinations',
    )
    .action(async (flags: ReadingFlags) => {
      const parts = await statusParts();
      await overEachShard(
        flags,
        (options) => readFrom(options, flags, (database) => readStatus(database)),
        (status) => printStatus(status, parts),
      );
    });
}

function statusParts(): Promise<StatusPart[]> {
  return Promise.all(features.flatMap(({ status }) => (status ? [status()] : [])));
}

export async function readStatus(database: Database) {
  const ofFeatures: Record<string, readonly object[]> = {};
  for (const part of await statusParts()) ofFeatures[part.name] = await part.read(database);
  return {
    health: await readHealth(database),
    destinations: await readDestinations(database),
    relays: await readRelays(database),
    applications: await readApplications(database),
    ...ofFeatures,
    /** Set if the schema refuses relays of this version. */
    neededVersion: await readNeededVersion(database),
  };
}

function printStatus(
  status: Awaited<ReturnType<typeof readStatus>>,
  parts: readonly StatusPart[],
): void {
  const { health, destinations, relays, applications, neededVersion } = status;
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
  printTable(relays, [
    'name',
    'version',
    'application',
    'applicationVersion',
    'configuration',
    'heartbeatSecondsAgo',
    'destinations',
  ]);
  print('');
  printTable(applications.map(applicationRow), ['application', 'declared by', 'routes']);
  for (const { alarm } of health) if (alarm !== null) note(`warning: ${alarm}`);
  if (neededVersion !== null)
    note(
      `warning: the schema works with relays of Waybill ${neededVersion} and newer, and refuses those of this one, ${version}: upgrade it`,
    );
  const living = relays.filter((relay) => relay.heartbeatSecondsAgo < 60);
  for (const { name } of applications) {
    const its = living.filter((relay) => relay.application === name);
    if (new Set(its.map((relay) => relay.configuration)).size > 1)
      note(`warning: relays of the application ${name} run with different configurations`);
  }
  for (const gone of destinations.filter(
    (destination) => !destination.configured && destination.waiting > 0,
  )) {
    note(
      `warning: ${gone.name} is no longer configured and ${gone.waiting} deliveries wait for it: move_deliveries or discard_deliveries`,
    );
  }
  for (const part of parts) {
    for (const row of status[part.name as keyof typeof status] as readonly object[]) {
      const warning = part.warning(row);
      if (warning !== null) note(`warning: ${warning}`);
    }
  }
}

/** Marks routes that no relay declares any more. */
function applicationRow({ name, declarations, routes }: ApplicationReport) {
  return {
    application: name,
    'declared by': declarations.map(({ by, version: of }) => (of === null ? by : `${by} (${of})`)),
    routes: routes.map(
      ({ topic, to, by }) =>
        `${topic} -> ${to}${by.length === 0 && name !== 'sql' ? ' (no longer declared)' : ''}`,
    ),
  };
}

/** There may be thousands of endpoints: enabled ones without pending or dead deliveries are only counted. */
function withoutQuietEndpoints(destinations: readonly DestinationReport[]): {
  shown: DestinationReport[];
  quiet: number;
} {
  const isBusy = ({ origin, configured, paused, waiting, processing, dead }: DestinationReport) =>
    origin === 'file' || (configured && paused) || waiting + processing + dead > 0;
  const quiet = destinations.filter((each) => !isBusy(each) && each.configured);
  return { shown: destinations.filter(isBusy), quiet: quiet.length };
}
