// waybill rollout: shows and sets the share of the traffic that Waybill sends while another system sends the rest, and
// shows how the shadow compares the two.

import os from 'node:os';

import { Command, InvalidArgumentError } from 'commander';

import {
  countVerdicts,
  listComparisons,
  listRollouts,
  reportSent,
  setRollout,
  verdicts,
} from './database.js';
import type { RolloutReport } from './database.js';
import { checkJsonText } from '../../core/json-text.js';
import { time } from '../../cli/arguments.js';
import { confirm } from '../../cli/confirm.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { CommandError, exitCode, print, printJson, printTable } from '../../cli/output.js';

const actor = () => `cli:${os.userInfo().username}`;

type SetFlags = SharedFlags & { percent?: number; shadow?: boolean; yes?: boolean };
type ReportFlags = SharedFlags & { since?: Date; ignore?: string[]; examples: number };

export function rolloutCommand(): Command {
  const command = new Command('rollout').description(
    'change over from another system step by step: shadow, a percentage, everything',
  );

  sharedOptions(command.command('status', { isDefault: true }))
    .description('show the share of each rollout that Waybill sends')
    .action(async (flags: SharedFlags) => {
      const rollouts = await withDatabase(flags, listRollouts);
      if (flags.json) printJson(rollouts);
      else
        printTable(rollouts.map(rolloutRow), [
          'name',
          'destination',
          'sends',
          'changedAt',
          'changedBy',
        ]);
    });

  sharedOptions(command.command('set'))
    .description('send a percentage of the keys, or only compare as a shadow')
    .argument('<name>', 'the name of the rollout')
    .option('--percent <number>', 'from 0 to 100, with two decimals at most', percentage)
    .option('--shadow', 'render and compare everything, send nothing')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      '\nThe change waits for open transactions that have decided already, 30 seconds at most.\n\nExamples:\n  $ waybill rollout set registrations --shadow\n  $ waybill rollout set registrations --percent 10 --yes',
    )
    .action(async (name: string, flags: SetFlags) => {
      const { percent, shadow = false } = flags;
      if ((percent === undefined) === !shadow)
        throw new CommandError(exitCode.usage, 'give either --percent or --shadow');
      await withDatabase(flags, async (database) => {
        const before = findRollout(await listRollouts(database), name);
        const target = { percent: percent ?? 0, shadow };
        await confirm(
          `${name} sends ${sends(before)} to ${before.destination}; from now on ${sends(target)}?`,
          flags.yes ?? false,
        );
        await setRollout(database, name, target, actor());
        if (flags.json) printJson({ name, before: sends(before), now: sends(target), ...target });
        else print(`${name} now sends ${sends(target)} to ${before.destination}`);
      });
    });

  sharedOptions(command.command('report'))
    .description('compare what Waybill would have sent with what the other system sent')
    .argument('<name>', 'the name of the rollout')
    .option(
      '--since <time>',
      'only comparisons since this time, such as 2026-01-31T08:00:00Z',
      time,
    )
    .option('--ignore <paths...>', 'paths that may differ, such as timestamp or data.sent_at')
    .option('--examples <count>', 'show this many differences', wholeNumber, 5)
    .addHelpText(
      'after',
      '\nmatched: both sent the same; different: both sent, but not the same; missing: only the other system; extra: only Waybill;\nwaiting: one side, for less than a minute.\n\nExit codes: 0 no differences, 10 differences.\n\nExamples:\n  $ waybill rollout report registrations --ignore timestamp\n  $ waybill rollout report registrations --since 2026-01-31 --json',
    )
    .action(async (name: string, flags: ReportFlags) => {
      const report = await withDatabase(flags, async (database) => {
        findRollout(await listRollouts(database), name);
        const filter = { since: flags.since?.toISOString() ?? null, ignore: flags.ignore ?? [] };
        return {
          ...(await countVerdicts(database, name, filter)),
          examples: await listComparisons(database, name, filter, flags.examples),
        };
      });
      const { examples, ...counts } = report;
      if (flags.json) printJson(report);
      else {
        printTable([counts], verdicts);
        for (const { verdict, reference, rendered, refused, sent } of examples) {
          print(`\n${verdict}: ${reference}`);
          print(`  Waybill  ${refused === null ? shownBody(rendered) : `refuses it: ${refused}`}`);
          print(`  other    ${shownBody(sent)}`);
        }
      }
      if (counts.different + counts.missing + counts.extra > 0)
        process.exitCode = exitCode.findings;
    });

  sharedOptions(command.command('sent'))
    .description('record what the other system has sent, for the comparison')
    .argument('<name>', 'the name of the rollout')
    .argument('<reference>', 'the dedupe key of the message, or its id if it has none')
    .argument('<body>', 'the JSON that was sent')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill rollout sent registrations user-17/registered \'{"event": "user.registered"}\'',
    )
    .action(async (name: string, reference: string, body: string, flags: SharedFlags) => {
      checkJson(body);
      await withDatabase(flags, (database) => reportSent(database, name, reference, body));
      if (flags.json) printJson({ name, reference });
    });
  return command;
}

function sends({ percent, shadow }: { percent: number; shadow: boolean }): string {
  return shadow ? 'nothing (shadow)' : `${percent} %`;
}

function rolloutRow(rollout: RolloutReport): Record<string, unknown> {
  const { routed } = rollout;
  return { ...rollout, sends: `${sends(rollout)}${routed ? '' : ' (no route has it)'}` };
}

function findRollout(rollouts: readonly RolloutReport[], name: string): RolloutReport {
  const found = rollouts.find((rollout) => rollout.name === name);
  if (found !== undefined) return found;
  const known = rollouts.map((rollout) => rollout.name).join(', ') || 'none';
  throw new CommandError(
    exitCode.notFound,
    `there is no rollout "${name}": there are ${known}; give a route of the configuration one (rollout: '${name}') and start a relay`,
  );
}

function percentage(value: string): number {
  const number = Number(value);
  if (!/^\d{1,3}(\.\d{1,2})?$/.test(value) || number > 100)
    throw new InvalidArgumentError('give a number from 0 to 100, with two decimals at most.');
  return number;
}

function wholeNumber(value: string): number {
  if (!/^\d{1,3}$/.test(value)) throw new InvalidArgumentError('give a number from 0 to 999.');
  return Number(value);
}

function checkJson(body: string): void {
  try {
    checkJsonText('body', body);
  } catch (error) {
    throw new CommandError(exitCode.usage, (error as Error).message);
  }
}

function shownBody(body: unknown): string {
  return body === null ? '–' : JSON.stringify(body).slice(0, 400);
}
