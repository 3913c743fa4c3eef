// waybill dev: runs everything on this machine with one command: its own PostgreSQL (or the one of DATABASE_URL), the
// schema, a relay with demo destinations, demo traffic, and the HTTP port.

import { Command } from 'commander';

import { createRelay } from '../config.js';
import { withoutPassword } from '../database/address.js';
import { Database, resolveDatabaseOptions } from '../database/connection.js';
import { migrateUp } from '../database/migrate.js';
import { demoConfig, startPartner, startTraffic } from '../dev/demo.js';
import { startPostgres } from '../dev/embedded-postgres.js';
import type { PostgresServer } from '../dev/embedded-postgres.js';
import { LiveLine } from '../dev/live-line.js';
import { makeLogins } from '../dev/logins.js';
import { platformNote } from '../dev/windows.js';
import { defaultPort, resolveServerOptions } from '../server/options.js';
import { Metrics } from '../telemetry/metrics.js';
import { wholeNumber } from './arguments.js';
import { openLog } from './log.js';
import { exitCode, note, print } from './output.js';
import { untilStopped } from './stop-signal.js';

type Flags = { port: number; rate: number; data?: string; schema: string };

export function devCommand(): Command {
  return new Command('dev')
    .description('try Waybill: an embedded PostgreSQL, a relay, demo traffic, and the page')
    .option(
      '-p, --port <port>',
      'the HTTP port on loopback; if it is busy, the next free one',
      wholeNumber,
      defaultPort,
    )
    .option('--rate <n>', 'demo registrations per second', wholeNumber, 25)
    .option(
      '--data <directory>',
      'keep the embedded database in this directory (default: a temporary one)',
    )
    .option(
      '--schema <name>',
      'the schema that Waybill lives in',
      process.env['WAYBILL_SCHEMA'] ?? 'outbox',
    )
    .addHelpText(
      'after',
      '\nDATABASE_URL, when set, is used instead of the embedded PostgreSQL.\n\nExamples:\n  $ waybill dev\n  $ waybill dev --rate 500 --data .waybill',
    )
    .action(runDev);
}

async function runDev(flags: Flags): Promise<void> {
  const steps: (() => Promise<void>)[] = [];
  try {
    await run(flags, steps);
  } finally {
    for (const step of steps.toReversed())
      await step().catch((error: unknown) => note(String(error)));
  }
  print('stopped');
  process.exit(exitCode.ok);
}

/** Runs until it is stopped, which may happen during the start. Adds the clean-up steps to `steps`. */
async function run(flags: Flags, steps: (() => Promise<void>)[]): Promise<void> {
  const stopped = untilStopped();
  // the reader of the output (head, less) has gone: stop
  process.stdout.once('error', () => process.kill(process.pid, 'SIGTERM'));
  let asked = false;
  const isAsked = (): boolean => asked;
  const shown: { line?: LiveLine } = {};
  void stopped.then(() => {
    asked = true;
    shown.line?.stop();
    print('stopping: finishing deliveries in flight');
  });
  const { url, isOurs } = await databaseUrl(flags, steps);
  if (isAsked()) return;
  print('schema    migrating');
  const migrated = migrateUp({ url, schema: flags.schema });
  // Each step of a migration is one transaction, so it can be given up: the next start goes on from there.
  await Promise.race([migrated, stopped]);
  if (isAsked()) return;
  print(`schema    "${flags.schema}" is ready, ${(await migrated).checks.length} checks passed`);
  const logins = isOurs
    ? await makeLogins(url, flags.schema)
    : { relay: url, page: url, application: url };
  const database = new Database(
    resolveDatabaseOptions({ url: logins.page, schema: flags.schema }),
    {
      connections: 2,
      applicationName: 'waybill dev',
    },
  );
  steps.push(() => database.close());

  let ready = false;
  const metrics = new Metrics();
  const { startServer } = await import('../server/server.js');
  const partner = await startPartner();
  steps.push(() => partner.close());
  const config = demoConfig(logins.relay, flags.schema, partner.url);
  const server = await startServer(
    resolveServerOptions({ port: flags.port, authentication: 'none' }),
    { database, config, isReady: () => ready, metrics, nextFreePort: true },
  );
  steps.push(() => server.close());
  if (!server.url.endsWith(`:${flags.port}`))
    note(`port ${flags.port} is busy, so another one was taken (choose with --port)`);

  const log = openLog('warn');
  const line = new LiveLine(database);
  const relay = createRelay({
    ...config,
    onEvent: (event) => {
      log.write(event);
      metrics.observe(event);
      line.observe(event);
    },
  });
  await relay.start();
  steps.push(() => relay.stop());
  const traffic = await startTraffic(logins.application, flags.schema, flags.rate);
  steps.push(() => traffic.stop());
  ready = true;
  print('relay     delivering to crm, billing and partner');
  print(`page      ${server.url}/`);
  print(`health    ${server.url}/healthz`);
  print(
    '\nTry in psql:  SELECT * FROM outbox.health;   Stop with Ctrl-C.\n'.replace(
      'outbox',
      flags.schema,
    ),
  );
  if (isAsked()) return;
  shown.line = line;
  line.start(() => traffic.enqueued());
  await stopped;
}

/** The given address, or that of a PostgreSQL started here. */
async function databaseUrl(
  flags: Flags,
  steps: (() => Promise<void>)[],
): Promise<{ url: string; isOurs: boolean }> {
  const given = resolveDatabaseOptions().url;
  if (given !== undefined) {
    print(`database  ${withoutPassword(given)} (from DATABASE_URL)`);
    return { url: given, isOurs: false };
  }
  print('database  starting an embedded PostgreSQL');
  const server: PostgresServer = await startPostgres(
    flags.data === undefined ? {} : { dataDirectory: flags.data },
  );
  steps.push(() => server.remove());
  print(`database  PostgreSQL ${server.version} at ${server.url}`);
  const limits = platformNote();
  if (limits !== undefined) note(limits);
  return { url: server.url, isOurs: true };
}
