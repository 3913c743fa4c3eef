// waybill explain: says why a message is not delivered yet, and what an operator can do.

import { Command } from 'commander';

import { explain } from '../listing/explanations.js';
import { messageId } from './arguments.js';
import { exitCode, print, printJson } from './output.js';
import { readingOptions, withReadableDatabase } from '../features/replicas/flags.js';
import type { ReadingFlags } from '../features/replicas/flags.js';

export function explainCommand(): Command {
  return readingOptions(new Command('explain'))
    .description('say why a message is not delivered yet, and what to do')
    .argument('<id>', 'the message', messageId)
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill explain 019a8f2e-7a31-7c55-9a3b-6f1f2a9d0c11\n  $ waybill explain --json 019a8f2e-7a31-7c55-9a3b-6f1f2a9d0c11 | jq -r .[].reason',
    )
    .action(async (id: string, flags: ReadingFlags) => {
      const answers = await withReadableDatabase(flags, (database) => explain(database, id), {
        // a replica that lags may not have the message yet: then the primary is asked
        isAnswer: (found) => found.every(({ reason }) => reason !== 'unknown_message'),
      });
      if (answers.some(({ reason }) => reason === 'unknown_message'))
        process.exitCode = exitCode.notFound;
      if (flags.json) return printJson(answers);
      for (const { destination, status, sentence, remedy } of answers) {
        print(`${destination ?? 'no destination'}: ${status}. ${sentence}`);
        if (remedy !== null) print(`  ${remedy}`);
      }
    });
}
