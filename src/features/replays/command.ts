// waybill replay: sends messages of the past to a destination again. It shows a plan, asks for confirmation, and then
// replays at a steady rate. The database records the progress, so a replay that was killed can be resumed.

import os from 'node:os';

import { Command } from 'commander';

import type { Database } from '../../database/connection.js';
import { cancelReplay, listReplays, planReplay, resumeReplay, startReplay } from './database.js';
import type { ReplayFilter, ReplayPlan, ReplayReport } from './database.js';
import { runReplay } from './run-replay.js';
import { messageId, time, wholeNumber } from '../../cli/arguments.js';
import { confirmTyped } from '../../cli/confirm.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { CommandError, exitCode, note, print, printJson, printTable } from '../../cli/output.js';
import { untilStopped } from '../../cli/stop-signal.js';

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

/** A plan reads up to 100,000 messages. */
const planTimeoutMs = 120_000;

export function replayCommand(): Command {
  const command = sharedOptions(new Command('replay'))
    .description('send messages of the past to a destination again')
    // options after "resume" belong to it
    .enablePositionalOptions()
    .option('--destination <name>', 'the destination (required)')
    .option('--topic <topic>', 'of this topic; `order.*` for every topic that begins with `order.`')
    .option('--namespace <name>', 'of this namespace')
    .option('--tenant <id>', 'of this tenant')
    .option('--key <key>', 'of this key')
    .option('--since <time>', 'created at or after (ISO 8601)', time)
    .option('--until <time>', 'created before (ISO 8601); now if not given', time)
    .option('--id <ids...>', 'these messages', collectIds)
    .option('--all', 'all messages that the destination has had, or that its routes match')
    .option('--rate <n>', 'the most messages per second', wholeNumber, 100)
    .option(
      '--plan',
      'show how many messages match, some of them and the duration, and change nothing',
    )
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      '\nAfter a crash, run the same command again, or "replay resume": it continues where it stopped.\n\nExit codes: 0 done, 1 an error, 3 nothing matches, 4 not confirmed, 5 stopped before the end.\n\nExamples:\n  $ waybill replay --destination crm --topic user.registered --since 2026-01-31T08:00:00Z --plan\n  $ waybill replay --destination crm --topic user.registered --since 2026-01-31T08:00:00Z --rate 50\n  $ waybill replay --destination crm --key order-4711 --yes',
    )
    .action(start);

  sharedOptions(command.command('resume'))
    .description('resume a replay that was stopped or killed')
    .argument('<id>', 'the number of the replay', replayId)
    .option('--rate <n>', 'the most messages per second from now on', wholeNumber)
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
    .description('end a replay; messages that it has replayed stay')
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
    .description('show the last replays and their progress')
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
          `replay ${plan.unfinished} has the same filter and is unfinished: it continues where it stopped`,
        );
      if (flags.plan) return;
      await confirmTyped(
        `Replay ${count} messages to ${filter.destination}?`,
        filter.destination,
        flags.yes ?? false,
      );
      const { id, resumed } = await startReplay(database, filter, flags.rate, actor());
      note(
        `replay ${id} ${resumed ? 'resumed' : 'started'}; if it is stopped: waybill replay resume ${id}`,
      );
      await run(database, id, flags);
    },
    { statementTimeoutMs: planTimeoutMs },
  );
}

/** Runs until the replay has ended or the command is stopped. */
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
    note(`stopped: resume it with waybill replay resume ${id}`);
    throw error;
  }
  if (process.stderr.isTTY) note('');
  const [replay] = await listReplays(database, id);
  if (replay === undefined) throw new CommandError(exitCode.notFound, `replay ${id} is gone`);
  report(replay, flags);
  // the signals' listeners keep nothing alive, but the exit code must be set
  process.exitCode = replay.state === 'unfinished' ? exitCode.limitReached : exitCode.ok;
}

function report(replay: ReplayReport, flags: SharedFlags): void {
  const { id, state, replayed, waiting, processing } = replay;
  if (flags.json) printJson(replay);
  else
    print(
      `replay ${id} ${state}: replayed ${replayed}, passed over ${waiting + processing} (waiting ${waiting}, in flight ${processing})`,
    );
  if (state === 'unfinished') note(`resume it with: waybill replay resume ${id}`);
}

/** Reports messages that retention has removed and that can therefore not be replayed. */
function noteMissing({ keptSince, expired }: ReplayPlan, { ids }: ReplayFilter): void {
  if (keptSince !== null && ids === undefined)
    note(
      `retention has removed messages from before ${keptSince.toISOString()}: they cannot be replayed`,
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
    throw new CommandError(exitCode.usage, 'which destination? Give --destination');
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
