// waybill drain: delivers due messages once, for cron. The exit code says whether the queue was emptied.

import { Command } from 'commander';

import { createRelay, createShardedRelay } from '../config.js';
import type { Config } from '../config.js';
import type { DrainReport } from '../relay/drains.js';
import type { ShardedDrainReport } from '../features/shards/relay.js';
import { wholeNumber } from './arguments.js';
import { configuredRelay, sharedOptions, withFilters } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { openLog } from './log.js';
import type { EventLog } from './log.js';
import { exitCode, note, print, printJson } from './output.js';
import { untilStopped } from './stop-signal.js';

type Flags = Omit<SharedFlags, 'shard'> & {
  shard?: string[];
  maxMs: number;
  maxMessages: number;
  tenant?: string[];
  namespace?: string;
};

export function drainCommand(): Command {
  return sharedOptions(new Command('drain'), { several: true })
    .description('deliver due messages once, then exit; for cron')
    .option('--max-ms <ms>', 'stop after this long', wholeNumber, 50_000)
    .option(
      '--max-messages <n>',
      'stop after this many messages for each destination',
      wholeNumber,
      1_000_000,
    )
    .option('--tenant <id...>', 'serve only these tenants')
    .option('--namespace <name>', 'serve only this namespace')
    .addHelpText(
      'after',
      '\nExit codes: 0 the queue was emptied, 1 an error, 5 a limit was reached before that, or another process reads a stream.\n\nExamples:\n  $ waybill drain --max-ms 50000\n  * * * * * waybill drain --config /srv/app/waybill.config.ts --json',
    )
    .action(async (flags: Flags) => {
      const config = await configuredRelay(flags);
      const log = openLog('warn');
      const relay = makeRelay(withFilters(config, flags), flags, log);
      // on a signal, held deliveries are finished or released, and the report says how far the drain came
      void untilStopped().then(() => relay.stop());
      const report: DrainReport & Partial<ShardedDrainReport> = await relay.drain({
        maxMs: flags.maxMs,
        maxMessages: flags.maxMessages,
      });
      if (flags.json) printJson(report);
      else print(sentence(report));
      let hasFailed = false;
      for (const [name, shard] of Object.entries(report.shards ?? {})) {
        if ('error' in shard) {
          hasFailed = true;
          note(`waybill: ${name}: ${shard.error}`);
        } else if (!flags.json) print(`${name}: ${sentence(shard)}`);
      }
      if (hasFailed) process.exit(exitCode.error);
      for (const cursor of report.heldCursors)
        note(`another process reads ${cursor}; see: waybill cursors`);
      if (!report.finished && report.heldCursors.length === 0)
        note('a limit was reached before the queue was empty');
      if (report.unrouted > 0)
        note(
          `messages without a route: ${report.unrouted}; waybill unrouted list shows their topics`,
        );
      process.exit(report.finished ? exitCode.ok : exitCode.limitReached);
    });
}

function makeRelay(config: Config, { shard: only }: Flags, log: EventLog) {
  if (config.shards === undefined)
    return createRelay({ ...config, onEvent: (event) => log.write(event) });
  return createShardedRelay({
    ...config,
    ...(only && { only }),
    onEvent: (event, shard) => log.write(event, shard),
  });
}

function sentence({ processed, succeeded, failed, released, unrouted }: DrainReport): string {
  return `processed ${processed}, succeeded ${succeeded}, failed ${failed}, released ${released}, unrouted ${unrouted}`;
}
