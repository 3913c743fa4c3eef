// waybill endpoints test and reseal: the two commands that open sealed secrets, and therefore need the keys of
// WAYBILL_SECRET_KEY.

import os from 'node:os';

import type { Command } from 'commander';

import { readEndpoint, readEndpoints, resealEndpoint } from './database.js';
import { resealed } from './secrets.js';
import { resolveEndpointOptions } from './options.js';
import { testEndpoint, testTopic } from './test-message.js';
import { secretKeys } from '../../core/secret-keys.js';
import { endpointOptions, sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { CommandError, exitCode, note, print, printJson } from '../../cli/output.js';

const shownBytes = 500;

export function endpointSecretCommands(parent: Command): void {
  sharedOptions(parent.command('test'))
    .description(`send one test message with the topic ${testTopic} now, signed like all others`)
    .argument('<name>')
    .addHelpText(
      'after',
      '\nExit codes: 0 accepted, 1 not accepted.\n\nExamples:\n  $ waybill endpoints test acme-billing',
    )
    .action(async (name: string, flags: SharedFlags) => {
      const keys = secretKeys();
      const options = resolveEndpointOptions(await endpointOptions(flags));
      const row = await withDatabase(flags, (database) => readEndpoint(database, name));
      if (row === undefined)
        throw new CommandError(exitCode.notFound, `endpoint "${name}" does not exist`);
      const { messageId, outcome, ms } = await testEndpoint(row, keys, options);
      const { remoteCode, response, message, code } = outcome as Record<string, string | undefined>;
      const answer = (response ?? message ?? '').slice(0, shownBytes);
      const delivered = outcome.kind === 'delivered';
      if (flags.json) {
        const status = remoteCode ?? null;
        printJson({ name, messageId, delivered, status, code: code ?? null, ms, answer });
      } else {
        print(`${delivered ? 'delivered' : `not delivered (${code})`} in ${ms} ms`);
        if (remoteCode !== undefined) print(`status  ${remoteCode}`);
        if (answer !== '') print(`answer  ${answer}`);
      }
      process.exitCode = delivered ? exitCode.ok : exitCode.error;
    });

  sharedOptions(parent.command('reseal'))
    .description(
      'seal all secrets with the first key of WAYBILL_SECRET_KEY, so that older keys can be removed',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ WAYBILL_SECRET_KEY="$NEW_KEY,$OLD_KEY" waybill endpoints reseal',
    )
    .action(async (flags: SharedFlags) => {
      const keys = secretKeys();
      const actor = `cli:${os.userInfo().username}`;
      const count = await withDatabase(flags, async (database) => {
        let done = 0;
        for (const row of await readEndpoints(database)) {
          const parts = resealed(keys, row);
          if (parts === null) continue;
          if (!(await resealEndpoint(database, row, parts, actor)))
            throw new CommandError(
              exitCode.error,
              `${row.name} was changed meanwhile: run the command again`,
            );
          done += 1;
        }
        return done;
      });
      if (flags.json) printJson({ resealed: count });
      else note(`sealed ${count} endpoints anew`);
    });
}
