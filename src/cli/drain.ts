// waybill drain: deliver what is due, once, for cron. The exit code tells whether the queue was emptied.

import { Command } from 'commander';

import { createRelay } from '../config.js';
import { wholeNumber } from './arguments.js';
import { configuredRelay, sharedOptions, withFilters } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { createLog, logEvent } from './log.js';
import { exitCode, note, print, printJson } from './output.js';
import { untilStopped } from './stop-signal.js';

type Flags = SharedFlags & {
  maxMs: number;
  maxMessages: number;
  tenant?: string[];
  namespace?: string;
};

export function drainCommand(): Command {
  return sharedOptions(new Command('drain'))
    .description('deliver what is due, then exit: one shot, for cron')
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
      '\nExit codes: 0 the queue was emptied, 1 an error, 5 a limit was reached before that.\n\nExamples:\n  $ waybill drain --max-ms 50000\n  * * * * * waybill drain --config /srv/app/waybill.config.ts --json',
    )
    .action(async (flags: Flags) => {
      const config = await configuredRelay(flags);
      const log = createLog('warn');
      const relay = createRelay({
        ...withFilters(config, flags),
        onEvent: (event) => logEvent(log, event),
      });
      // asked to stop: what is held is finished or given back, and the report says how far it came
      void untilStopped().then(() => relay.stop());
      const report = await relay.drain({ maxMs: flags.maxMs, maxMessages: flags.maxMessages });
      if (flags.json) printJson(report);
      else
        print(
          `processed ${report.processed}, succeeded ${report.succeeded}, failed ${report.failed}, released ${report.released}`,
        );
      if (!report.finished) {
        note('a limit was reached before the queue was empty');
      }
      process.exit(report.finished ? exitCode.ok : exitCode.limitReached);
    });
}
