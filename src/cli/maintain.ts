// waybill maintain: partitions ahead, watches and retention, now. Every relay does this by itself; it is for those
// who run drains only, or who want to see it done.

import { Command } from 'commander';

import { loadConfig } from '../config.js';
import { makePartitions, prune, resolveRetention } from '../database/maintenance.js';
import { mendWatches } from '../database/watches.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { print, printJson, printTable } from './output.js';

export function maintainCommand(): Command {
  return sharedOptions(new Command('maintain'))
    .description(
      'make partitions ahead, watch new partitions and remove what has outlived its retention',
    )
    .action(async (flags: SharedFlags) => {
      const config = await loadConfig(flags.config).catch((error: unknown) => {
        if (flags.config !== undefined) throw error;
        return undefined;
      });
      const retention = resolveRetention(config?.retention);
      const report = await withDatabase(flags, async (database) => {
        const partitions = await makePartitions(database);
        const watches = { mended: await mendWatches(database) };
        return { partitions, watches, pruned: await prune(database, retention) };
      });
      if (flags.json) return printJson(report);
      print(
        `partitions: ${report.partitions.made} made, ${report.partitions.daysAhead} days ahead`,
      );
      print(`watches: ${report.watches.mended} partitions mended`);
      printTable(report.pruned, ['what', 'rows', 'ms']);
    });
}
