// waybill destinations: lists destinations with their state, pauses, resumes and tests one, and checks whether the
// configured destinations can be reached.

import os from 'node:os';

import { Command } from 'commander';

import type { Database } from '../database/connection.js';
import { namesUnless, sendTest, setPaused } from '../database/definitions.js';
import { readMessage } from '../listing/message-detail.js';
import type { Attempt } from '../listing/message-detail.js';
import { readDestinations } from '../listing/reports.js';
import type { DestinationReport } from '../listing/reports.js';
import type { Destination } from '../destinations/destination.js';
import { errorText } from '../core/errors.js';
import { wholeNumber } from './arguments.js';
import { configuredRelay, sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { CommandError, exitCode, print, printJson, printTable } from './output.js';

const actor = () => `cli:${os.userInfo().username}`;

/** The most time for the check of one destination. */
const longestCheckMs = 10_000;

export function destinationsCommand(): Command {
  const command = new Command('destinations').description(
    'list, pause, resume, test or check destinations',
  );

  sharedOptions(command.command('list', { isDefault: true }))
    .description('show pending deliveries, paused destinations with the reason, and open breakers')
    .action(async (flags: SharedFlags) => {
      const destinations = await withDatabase(flags, readDestinations);
      if (flags.json) return printJson(destinations);
      printTable(destinations.map(destinationRow), [
        'name',
        'kind',
        'waiting',
        'retrying',
        'dead',
        'pausedSince',
        'why',
        'breaker',
      ]);
    });

  sharedOptions(command.command('pause'))
    .description('pause a destination: from the next claim on, relays deliver nothing to it')
    .argument('<name>', 'the name of the destination')
    .option('--reason <text>', 'the reason, for other operators')
    .addHelpText('after', '\nExamples:\n  $ waybill destinations pause crm --reason "they migrate"')
    .action(async (name: string, flags: SharedFlags & { reason?: string }) => {
      await withDatabase(flags, async (database) => {
        await requireDestination(database, name);
        await setPaused(database, name, true, actor(), flags.reason ?? null);
      });
      if (flags.json) printJson({ paused: name });
      else print(`paused: ${name}`);
    });

  sharedOptions(command.command('resume'))
    .description('resume a paused destination')
    .argument('<name>', 'the name of the destination')
    .addHelpText('after', '\nExamples:\n  $ waybill destinations resume crm')
    .action(async (name: string, flags: SharedFlags) => {
      const { waiting } = await withDatabase(flags, async (database) => {
        const found = await findDestination(database, name);
        await setPaused(database, name, false, actor(), null);
        return found;
      });
      if (flags.json) printJson({ resumed: name, waiting });
      else print(`resumed: ${name}, ${waiting} waiting`);
    });

  sharedOptions(command.command('test'))
    .description('send one test message to a destination, through the relays, and show the result')
    .argument('<name>', 'the name of the destination')
    .option('--wait <seconds>', 'how long to wait for an answer', wholeNumber, 10)
    .addHelpText(
      'after',
      '\nThe message has the topic waybill.test and is recorded like any other.\n\nExit codes: 0 delivered, 1 not delivered (yet), 3 no destination has this name.\n\nExamples:\n  $ waybill destinations test crm\n  $ waybill destinations test crm --wait 60 --json',
    )
    .action(async (name: string, flags: SharedFlags & { wait: number }) => {
      const test = await withDatabase(flags, async (database) => {
        await requireDestination(database, name);
        return watchTest(database, await sendTest(database, name, actor()), flags.wait * 1000);
      });
      if (flags.json) printJson(test);
      else print(testSentence(name, test));
      if (test.status !== 'delivered') process.exitCode = exitCode.error;
    });

  sharedOptions(command.command('check'))
    .description('check whether the destinations of the configuration can be reached')
    .argument('[name]', 'only this one')
    .addHelpText(
      'after',
      '\nExit codes: 0 no problems, 1 a destination has a problem, 3 no destination has this name.\n\nExamples:\n  $ waybill destinations check\n  $ waybill destinations check crm --json',
    )
    .action(async (name: string | undefined, flags: SharedFlags) => {
      const { destinationsOf } = await import('../config.js');
      const destinations = destinationsOf(await configuredRelay(flags));
      const wanted = Object.entries(destinations).filter(
        ([key]) => name === undefined || key === name,
      );
      if (name !== undefined && wanted.length === 0) throw unknown(name, Object.keys(destinations));
      const checks = await Promise.all(
        wanted.map(async ([key, destination]) => ({
          name: key,
          kind: destination.kind,
          ...(await check(destination)),
        })),
      );
      if (flags.json) printJson(checks);
      else printTable(checks, ['name', 'kind', 'health', 'problem']);
      // a client that still tries to connect must not keep the process alive
      process.exit(checks.some(({ health }) => health === 'failed') ? exitCode.error : exitCode.ok);
    });
  return command;
}

type Test = { messageId: string; status: string; attempt: Attempt | null; why: string | null };

const askEveryMs = 100;

/** Waits until a relay has tried the test message, or until the time is up. */
async function watchTest(database: Database, messageId: string, waitMs: number): Promise<Test> {
  const deadlineMs = performance.now() + waitMs;
  for (;;) {
    const message = await readMessage(database, messageId);
    const attempt = message?.attempts.findLast(({ endedAt }) => endedAt !== null) ?? null;
    const [place] = message?.explanations ?? [];
    if (attempt !== null || performance.now() >= deadlineMs)
      return {
        messageId,
        status: place?.status ?? 'unknown',
        attempt,
        why: place?.sentence ?? null,
      };
    await new Promise((resolve) => setTimeout(resolve, askEveryMs));
  }
}

function testSentence(name: string, { messageId, status, attempt, why }: Test): string {
  if (status === 'delivered' && attempt !== null)
    return `${name} took test ${messageId} in ${attempt.latencyMs ?? '?'} ms${attempt.reference === null ? '' : `, receipt ${attempt.reference}`}`;
  return `${name} has not taken test ${messageId}: ${why ?? status}`;
}

type Check = { health: 'ok' | 'failed' | 'unknown'; problem: string | null };

/** Opens the destination as a relay does, checks it, and closes it. */
async function check(destination: Destination): Promise<Check> {
  const limitMs = Math.min(destination.settings.timeoutMs, longestCheckMs);
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Check>((resolve) => {
    timer = setTimeout(() => {
      const problem = `no answer within ${limitMs} ms`;
      controller.abort(new Error(problem));
      resolve({ health: 'failed', problem });
    }, limitMs);
  });
  try {
    return await Promise.race([ask(destination, controller.signal), late]);
  } catch (error) {
    return { health: 'failed', problem: errorText(error) };
  } finally {
    await Promise.race([Promise.resolve(destination.close?.()).catch(() => {}), late]);
    clearTimeout(timer);
  }
}

async function ask(destination: Destination, signal: AbortSignal): Promise<Check> {
  await destination.open?.();
  if (destination.health === undefined)
    return { health: 'unknown', problem: 'this kind has nothing to ask' };
  const health = await destination.health({ signal });
  return health.ok
    ? { health: 'ok', problem: null }
    : { health: 'failed', problem: health.problem };
}

async function findDestination(database: Database, name: string): Promise<DestinationReport> {
  const [found] = await readDestinations(database, [name]);
  if (found === undefined) throw unknown(name, (await namesUnless(database, name)) ?? []);
  return found;
}

/** Refuses the name of an unknown destination. */
export async function requireDestination(database: Database, name: string): Promise<void> {
  const known = await namesUnless(database, name);
  if (known !== null) throw unknown(name, known);
}

function unknown(name: string, known: readonly string[]): CommandError {
  return new CommandError(
    exitCode.notFound,
    `no destination is named "${name}": there are ${known.join(', ') || 'none'}`,
  );
}

/**
 * A row of the table: who paused the destination and why in one cell, and the state of a breaker that is not closed.
 */
export function destinationRow(destination: DestinationReport): Record<string, unknown> {
  const { pausedAt, pausedBy, pausedCode, pausedReason, breakers } = destination;
  const why = [pausedCode, pausedReason].filter((part) => part !== null).join(' ');
  return {
    ...destination,
    pausedSince: pausedAt,
    why: pausedAt === null ? null : [pausedBy, why].filter((part) => part).join(': '),
    breaker: breakers.map(({ relay, state }) => `${state} at ${relay}`),
  };
}
