// waybill maintain: runs maintenance now: partitions ahead, the maintenance of features, and retention. Every relay does
// this by itself; the command is for deployments that only drain, and for operators who want to see the result.

import { Command } from 'commander';

import { forShard } from '../config.js';
import { NoRightsError } from '../core/errors.js';
import { handOverCursors } from '../database/cursors.js';
import { makePartitions } from '../relay/upkeep/partitions.js';
import { prune, resolveRetention } from '../relay/upkeep/retention.js';
import type { Pruned } from '../relay/upkeep/retention.js';
import { mayMaintain, tellFloors } from '../relay/upkeep/retention-floors.js';
import { features } from '../features/all.js';
import type { Emit } from '../telemetry/events.js';
import { optionalConfig, sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { openLog } from './log.js';
import { print, printJson, printTable } from './output.js';

type Report = {
  partitions: Awaited<ReturnType<typeof makePartitions>>;
  pruned: Pruned[];
  /** The results of features. */
  [feature: string]: unknown;
};

export function maintainCommand(): Command {
  return sharedOptions(new Command('maintain'))
    .description(
      'run maintenance now: create partitions ahead, watch new partitions, seal the audit, apply retention',
    )
    .action(async (flags: SharedFlags) => {
      const loaded = await optionalConfig(flags);
      const config = loaded && flags.shard ? forShard(loaded, flags.shard) : loaded;
      const retention = resolveRetention(config?.retention);
      const log = openLog('info');
      const emit: Emit = (event) => log.write(event);
      const parts = await Promise.all(
        features.flatMap(({ maintenance }) => (maintenance ? [maintenance()] : [])),
      );
      const report: Report = await withDatabase(flags, async (database) => {
        const partitions = await makePartitions(database);
        const done: Record<string, unknown> = {};
        for (const part of parts) done[part.name] = await part.run({ database, config, emit });
        // messages that a cursor gave up hold back retention until they are unrouted
        await handOverCursors(database);
        if (!(await mayMaintain(database)))
          throw new NoRightsError(database.options.schema, 'remove_partition', 'maintenance');
        await tellFloors(database, retention, emit);
        return { partitions, ...done, pruned: await prune(database, retention) };
      });
      if (flags.json) return printJson(report);
      print(
        `partitions: ${report.partitions.made} made, ${report.partitions.daysAhead} days ahead`,
      );
      for (const part of parts)
        if (report[part.name] !== null) print(part.shown(report[part.name]));
      printTable(report.pruned, ['what', 'rows', 'ms']);
      for (const { thinned } of report.pruned)
        if (thinned !== undefined)
          print(`${thinned} partitions thinned: only rows of messages that are still needed stay`);
    });
}
