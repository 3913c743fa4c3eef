// waybill maintain: runs maintenance now: partitions ahead, watches, seals and retention. Every relay does this by
// itself; the command is for deployments that only drain, and for operators who want to see the result.

import { Command } from 'commander';

import { forShard } from '../config.js';
import { handOverCursors } from '../database/cursors.js';
import { makePartitions, prune, resolveRetention } from '../relay/upkeep/maintenance.js';
import { tellFloors } from '../relay/upkeep/retention-floors.js';
import { mendWatches } from '../features/watches/database.js';
import { resolveAuditOptions } from '../features/audit/options.js';
import { headSinks } from '../features/audit/head-sinks.js';
import { maintainSeals } from '../features/audit/sealing.js';
import type { Emit } from '../telemetry/events.js';
import { optionalConfig, sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { openLog } from './log.js';
import { print, printJson, printTable } from './output.js';

export function maintainCommand(): Command {
  return sharedOptions(new Command('maintain'))
    .description(
      'run maintenance now: create partitions ahead, watch new partitions, seal the audit, apply retention',
    )
    .action(async (flags: SharedFlags) => {
      const loaded = await optionalConfig(flags);
      const config = loaded && flags.shard ? forShard(loaded, flags.shard) : loaded;
      const retention = resolveRetention(config?.retention);
      const audit = resolveAuditOptions(config?.audit);
      const log = openLog('info');
      const emit: Emit = (event) => log.write(event);
      const report = await withDatabase(flags, async (database) => {
        const partitions = await makePartitions(database);
        const watches = { mended: await mendWatches(database) };
        const sealed = audit.seal
          ? await maintainSeals(database, audit, headSinks(audit, emit), emit, Infinity)
          : null;
        // messages that a cursor gave up hold back retention until they are unrouted
        await handOverCursors(database);
        await tellFloors(database, retention, emit);
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
