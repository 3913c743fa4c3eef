// waybill start: run a relay until it is told to stop.

import { Command } from 'commander';

import { createRelay } from '../config.js';
import { configuredRelay, sharedOptions } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { createLog, logEvent } from './log.js';
import { exitCode } from './output.js';
import { untilStopped } from './stop-signal.js';

type Flags = SharedFlags & { tenant?: string[]; namespace?: string; verbose?: boolean };

export function startCommand(): Command {
  return sharedOptions(new Command('start'))
    .description('run a relay: claim, deliver and settle until stopped')
    .option('--tenant <id...>', 'serve only these tenants')
    .option('--namespace <name>', 'serve only this namespace')
    .option('-v, --verbose', 'log every claim, delivery failure and settle')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill start\n  $ waybill start --config billing.config.ts --tenant acme\n\nCtrl-C finishes or gives back what is held; a second Ctrl-C exits at once.',
    )
    .action(async (flags: Flags) => {
      const config = await configuredRelay(flags);
      const log = createLog(flags.verbose ? 'debug' : 'info');
      const relay = createRelay({
        ...withFilters(config, flags),
        onEvent: (event) => logEvent(log, event),
      });
      await relay.start();
      await untilStopped();
      await relay.stop();
      // a handler that ignores its abort must not keep the process
      process.exit(exitCode.ok);
    });
}

export function withFilters<C extends { relay?: object }>(
  config: C,
  flags: { tenant?: string[]; namespace?: string },
): C {
  return {
    ...config,
    relay: {
      ...config.relay,
      ...(flags.tenant && { tenantIds: flags.tenant }),
      ...(flags.namespace && { namespace: flags.namespace }),
    },
  };
}
