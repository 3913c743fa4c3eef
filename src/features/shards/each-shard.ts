// Runs a command for every shard in turn, each under a heading; without shards, for the one database. A shard that
// fails does not stop the others: its error is shown under its heading, and the command ends with its exit code.

import type { DatabaseOptions } from '../../database/connection.js';
import { errorText } from '../../core/errors.js';
import { targets } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { print, printJson, reportFailure } from '../../cli/output.js';

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
