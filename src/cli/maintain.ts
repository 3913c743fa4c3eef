// waybill maintain: partitions ahead, watches, seals and retention, now. Every relay does this by itself; it is for those
// who run drains only, or who want to see it done.

import { Command } from 'commander';

import { forShard } from '../config.js';
import { makePartitions, prune, resolveRetention } from '../database/maintenance.js';
import { mendWatches } from '../database/watches.js';
import { resolveAuditOptions } from '../model/audit-options.js';
import { headSinks } from '../relay/head-sinks.js';
import { maintainSeals } from '../relay/sealing.js';
import type { Emit } from '../telemetry/events.js';
import { optionalConfig, sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { createLog, logEvent } from './log.js';
import { print, printJson, printTable } from './output.js';

export function maintainCommand(): Command {
  return sharedOptions(new Command('maintain'))
    .description(
      'make partitions ahead, watch new partitions, seal the audit and remove what has outlived its retention',
    )
    .action(async (flags: SharedFlags) => {
      const loaded = await optionalConfig(flags);
      const config = loaded && flags.shard ? forShard(loaded, flags.shard) : loaded;
      const retention = resolveRetention(config?.retention);
      const audit = resolveAuditOptions(config?.audit);
      const log = createLog('info');
      const emit: Emit = (event) => logEvent(log, event);
      const report = await withDatabase(flags, async (database) => {
        const partitions = await makePartitions(database);
        const watches = { mended: await mendWatches(database) };
        const sealed = audit.seal
          ? await maintainSeals(database, audit, headSinks(audit, emit), emit, Infinity)
          : null;
        return { partitions, watches, sealed, pruned: await prune(database, retention) };
      });
      if (flags.json) return printJson(report);
      print(
        `partitions: ${report.partitions.made} made, ${report.partitions.daysAhead} days ahead`,
      );
      print(`watches: ${report.watches.mended} partitions mended`);
      if (report.sealed !== null) print(`audit: ${report.sealed} rows sealed`);
      printTable(report.pruned, ['what', 'rows', 'ms']);
    });
}
