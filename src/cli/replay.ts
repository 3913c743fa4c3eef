// waybill replay: history once more. It plans first, asks, and then brings messages back at a steady rate. How far it
// came is kept in the database: killed anywhere, it goes on where it stopped.

import os from 'node:os';

import { Command } from 'commander';

import type { Database } from '../database/connection.js';
import {
  cancelReplay,
  listReplays,
  planReplay,
  resumeReplay,
  startReplay,
} from '../database/replays.js';
import type { ReplayFilter, ReplayPlan, ReplayReport } from '../database/replays.js';
import { runReplay } from '../database/run-replay.js';
import { messageId, time, wholeNumber } from './arguments.js';
import { confirmTyped } from './confirm.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { CommandError, exitCode, note, print, printJson, printTable } from './output.js';
import { untilStopped } from './stop-signal.js';

type FilterFlags = {
  destination?: string;
  id?: string[];
  topic?: string;
  namespace?: string;
  tenant?: string;
  key?: string;
  since?: Date;
  until?: Date;
};
type StartFlags = SharedFlags &
  FilterFlags & { all?: boolean; plan?: boolean; yes?: boolean; rate: number };

const actor = () => `cli:${os.userInfo().username}`;

/** A plan looks at 100,000 messages. */
const planTimeoutMs = 120_000;

export function replayCommand(): Command {
  const command = sharedOptions(new Command('replay'))
    .description('send messages of the past again, to one destination')
    // what stands behind "resume" is meant for it
    .enablePositionalOptions()
    .option('--destination <name>', 'where to; it must be given')
    .option('--topic <topic>', 'of this topic; user.* for all that begin so')
    .option('--namespace <name>', 'of this namespace')
    .option('--tenant <id>', 'of this tenant')
    .option('--key <key>', 'of this key')
    .option('--since <time>', 'created at or after (ISO 8601)', time)
    .option('--until <time>', 'created before (ISO 8601); now if not given', time)
    .option('--id <ids...>', 'these messages', collectIds)
    .option('--all', 'everything that the destination has had, or its routes want')
    .option('--rate <n>', 'at most so many a second', wholeNumber, 100)
    .option('--plan', 'show how many, which and how long it takes, and change nothing')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      '\nRun again after a crash, the same command goes on where it stopped; so does "replay resume".\n\nExit codes: 0 done, 1 an error, 3 nothing matches, 4 not confirmed, 5 stopped before the end.\n\nExamples:\n  $ waybill replay --destination crm --topic user.registered --since 2026-01-31T08:00:00Z --plan\n  $ waybill replay --destination crm --topic user.registered --since 2026-01-31T08:00:00Z --rate 50\n  $ waybill replay --destination crm --key order-4711 --yes',
    )
    .action(start);

  sharedOptions(command.command('resume'))
    .description('go on with a replay that was stopped or killed')
    .argument('<id>', 'the number of the replay', replayId)
    .option('--rate <n>', 'at most so many a second from now on', wholeNumber)
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill replay resume 7\n  $ waybill replay resume 7 --rate 20',
    )
    .action(async (id: string, flags: SharedFlags & { rate?: number }) => {
      await withDatabase(flags, async (database) => {
        await resumeReplay(database, id, flags.rate ?? null, actor());
        await run(database, id, flags);
      });
    });

  sharedOptions(command.command('cancel'))
    .description('end a replay where it stands; what it has brought stays')
    .argument('<id>', 'the number of the replay', replayId)
    .addHelpText('after', '\nExamples:\n  $ waybill replay cancel 7')
    .action(async (id: string, flags: SharedFlags) => {
      const cancelled = await withDatabase(flags, (database) =>
        cancelReplay(database, id, actor()),
      );
      if (flags.json) printJson({ replay: id, cancelled });
      else print(cancelled ? `cancelled: replay ${id}` : `replay ${id} had ended before`);
    });

  sharedOptions(command.command('list'))
    .description('show the last replays, and how far each has come')
    .addHelpText('after', '\nExamples:\n  $ waybill replay list --json')
    .action(async (flags: SharedFlags) => {
      const replays = await withDatabase(flags, (database) => listReplays(database));
      if (flags.json) return printJson(replays);
      printTable(replays, [
        'id',
        'destination',
        'filter',
        'state',
        'replayed',
        'waiting',
        'processing',
        'reachedAt',
        'actor',
        'startedAt',
        'endedAt',
      ]);
    });
  return command;
}

async function start(flags: StartFlags): Promise<void> {
  const filter = filterOf(flags);
  if (Object.keys(filter).length === 1 && !flags.all)
    throw new CommandError(exitCode.usage, 'which ones? Give a filter or ids, or --all');
  await withDatabase(
    flags,
    async (database) => {
      const plan = await planReplay(database, filter);
      const seconds = Math.ceil(plan.messages / flags.rate);
      if (flags.plan && flags.json) return printJson({ ...plan, seconds });
      const count = `${plan.isExact ? '' : 'about '}${plan.messages}`;
      noteMissing(plan, filter);
      if (plan.messages === 0) throw new CommandError(exitCode.notFound, nothing(filter));
      if (flags.plan || !flags.json) {
        const show = flags.plan ? print : note;
        show(
          `${count} messages to ${filter.destination}, at ${flags.rate} a second: ${duration(seconds)}`,
        );
        if (flags.plan)
          printTable(plan.sample, [
            'messageId',
            'topic',
            'tenantId',
            'key',
            'sequence',
            'createdAt',
            'status',
          ]);
      }
      if (plan.unfinished !== null)
        note(
          `replay ${plan.unfinished} asks for the same and is unfinished: it goes on where it stopped`,
        );
      if (flags.plan) return;
      await confirmTyped(
        `Replay ${count} messages to ${filter.destination}?`,
        filter.destination,
        flags.yes ?? false,
      );
      const { id, resumed } = await startReplay(database, filter, flags.rate, actor());
      note(
        `replay ${id} ${resumed ? 'goes on' : 'began'}; if it is stopped: waybill replay resume ${id}`,
      );
      await run(database, id, flags);
    },
    { statementTimeoutMs: planTimeoutMs },
  );
}

/** Until it has ended, or somebody stops the command. */
async function run(database: Database, id: string, flags: SharedFlags): Promise<void> {
  const controller = new AbortController();
  void untilStopped().then(() => controller.abort());
  try {
    await runReplay(database, id, {
      signal: controller.signal,
      async onStep() {
        if (!process.stderr.isTTY) return;
        const [replay] = await listReplays(database, id);
        process.stderr.write(`\rreplayed: ${replay?.replayed ?? 0}`);
      },
      onTrouble: () => note('the database does not answer: trying again'),
    });
  } catch (error) {
    note(`stopped: go on with waybill replay resume ${id}`);
    throw error;
  }
  if (process.stderr.isTTY) note('');
  const [replay] = await listReplays(database, id);
  if (replay === undefined) throw new CommandError(exitCode.notFound, `replay ${id} is gone`);
  report(replay, flags);
  // the signals' listeners would keep nothing alive, but an exit code must be said
  process.exitCode = replay.state === 'unfinished' ? exitCode.limitReached : exitCode.ok;
}

function report(replay: ReplayReport, flags: SharedFlags): void {
  const { id, state, replayed, waiting, processing } = replay;
  if (flags.json) printJson(replay);
  else
    print(
      `replay ${id} ${state}: replayed ${replayed}, passed over ${waiting + processing} (waiting ${waiting}, in flight ${processing})`,
    );
  if (state === 'unfinished') note(`go on with: waybill replay resume ${id}`);
}

/** What retention has removed cannot be replayed, and is not passed over in silence. */
function noteMissing({ keptSince, expired }: ReplayPlan, { ids }: ReplayFilter): void {
  if (keptSince !== null && ids === undefined)
    note(
      `nothing from before ${keptSince.toISOString()} is kept: what retention has removed has no payload any more, and cannot be replayed`,
    );
  if (expired > 0)
    note(
      `${expired} of the ids cannot be replayed: their payload has expired, retention has removed it`,
    );
}

function nothing({ destination }: ReplayFilter): string {
  return `nothing matches: a replay brings what ${destination} has had, or what its routes want now`;
}

function duration(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `about ${Math.round(seconds / 60)} minutes`;
  return `about ${Math.round(seconds / 3600)} hours`;
}

function collectIds(text: string, before: string[] = []): string[] {
  return [...before, messageId(text)];
}

function replayId(text: string): string {
  return String(wholeNumber(text));
}

function filterOf(flags: FilterFlags): ReplayFilter {
  const { destination, id, topic, namespace, tenant, key, since, until } = flags;
  if (destination === undefined)
    throw new CommandError(exitCode.usage, 'where to? Give --destination');
  return {
    destination,
    ...(id && { ids: id }),
    ...(topic !== undefined && { topic }),
    ...(namespace !== undefined && { namespace }),
    ...(tenant !== undefined && { tenantId: tenant }),
    ...(key !== undefined && { key }),
    ...(since && { since }),
    ...(until && { until }),
  };
}
