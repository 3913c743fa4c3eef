// A command that goes over every shard, one after another, each under a heading; or over the one database that there
// is, as if there were no shards. One that fails keeps none of the others: the failure is told where it belongs, and
// the command ends with its exit code.

import type { DatabaseOptions } from '../database/connection.js';
import { errorText } from '../errors.js';
import { targets } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { print, printJson, reportFailure } from './output.js';

export async function overEachShard<T>(
  flags: SharedFlags,
  work: (options: DatabaseOptions) => Promise<T>,
  show: (result: T) => void,
): Promise<void> {
  const found = await targets(flags);
  const [only] = found;
  if (only !== undefined && (only.shard === undefined || flags.shard !== undefined)) {
    const result = await work(only.options);
    return flags.json ? printJson(result) : show(result);
  }
  const answers: Record<string, unknown> = {};
  for (const { shard = '', options } of found) {
    if (!flags.json) print(`${shard === found[0]?.shard ? '' : '\n'}== ${shard} ==`);
    try {
      const result = await work(options);
      if (flags.json) answers[shard] = result;
      else show(result);
    } catch (error) {
      answers[shard] = { error: errorText(error) };
      process.exitCode = reportFailure(error, `waybill: ${shard}`);
    }
  }
  if (flags.json) printJson(answers);
}
