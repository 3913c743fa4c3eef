// waybill tail: what happens, as it happens, one line for each event. It follows until Ctrl-C, waits for a database
// that goes away, and says how much it left out when more happens than can be read.

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';

import { Command, Option } from 'commander';

import { isTransient } from '../database/connection.js';
import type { Database } from '../database/connection.js';
import type { Replica } from '../database/replica.js';
import { Tail, tailEvents } from '../database/tail.js';
import type { TailEvent, TailFilter, TailWindow } from '../database/tail.js';
import { errorText } from '../errors.js';
import { time } from './arguments.js';
import { connectionFailure } from './connection-failure.js';
import { withDatabase } from './connection-options.js';
import { requireDestination } from './destinations.js';
import { messageFilterOf, messageOptions } from './message-filter.js';
import type { MessageFlags } from './message-filter.js';
import { note } from './output.js';
import { readingOptions, replicaOf } from './replica-options.js';
import type { ReadingFlags } from './replica-options.js';
import { untilStopped } from './stop-signal.js';

type Flags = ReadingFlags &
  MessageFlags & {
    status?: TailFilter['event'];
    since?: Date;
  };

const lookEveryMs = 500;
/** A database that is away is asked again this often. */
const reconnectMs = 1000;
/** More lines than this at a time nobody reads. */
const linesAtMost = 500;

export function tailCommand(): Command {
  const command = readingOptions(new Command('tail'))
    .description('follow what happens: messages enqueued, attempts and how they ended')
    .addOption(new Option('--status <status>', 'only these events').choices(tailEvents));
  return messageOptions(command, {
    topic: 'of this topic; user.* for all that begin so',
    errorCode: 'attempts that failed with this code',
  })
    .option('--since <time>', 'begin with what happened at or after (ISO 8601)', time)
    .addHelpText(
      'after',
      '\nWith --json each line is an object. Ctrl-C ends it, with exit code 0.\n\nExamples:\n  $ waybill tail\n  $ waybill tail --status dead --destination crm\n  $ waybill tail --topic "user.*" --since 2026-01-31T08:00:00Z --json',
    )
    .action(async (flags: Flags) => {
      const stop = new AbortController();
      void untilStopped().then(() => stop.abort());
      // whoever reads it (head, less) has enough
      process.stdout.on('error', () => process.exit(0));
      await withDatabase(flags, async (database) => {
        const replica = replicaOf(database, flags);
        try {
          await replica?.start();
          await follow(database, replica, flags, stop.signal);
        } finally {
          await replica?.close();
        }
      });
    });
}

async function follow(
  database: Database,
  replica: Replica | undefined,
  flags: Flags,
  signal: AbortSignal,
): Promise<void> {
  const { status: event, since, destination } = flags;
  const filter: TailFilter = messageFilterOf(flags, { event, since });
  if (destination !== undefined) await requireDestination(database, destination);
  const tail = await Tail.start(database, filter, replica);
  note('following; Ctrl-C ends it');
  let away = false;
  while (!signal.aborted) {
    let pauseMs = lookEveryMs;
    try {
      const window = await tail.look(linesAtMost);
      if (away) note('connected again: going on where it was');
      away = false;
      await show(window, flags.json ?? false);
    } catch (error) {
      if (!isTransient(error)) throw error;
      if (!away)
        note(
          `the database is away (${connectionFailure(error) ?? errorText(error)}): reconnecting`,
        );
      away = true;
      pauseMs = reconnectMs;
    }
    await delay(pauseMs, undefined, { signal }).catch(() => {});
  }
}

async function show({ events, more, unseen }: TailWindow, json: boolean): Promise<void> {
  const lines = events.map((event) => (json ? JSON.stringify(event) : line(event)));
  // what is left out is the oldest
  if (more > 0 || unseen)
    lines.unshift(
      json
        ? JSON.stringify({ event: 'more', count: more, unseen })
        : `… ${unseen ? 'at least ' : ''}${more} more`,
    );
  if (lines.length === 0) return;
  const isTaken = process.stdout.write(`${lines.join('\n')}\n`);
  if (!isTaken) await once(process.stdout, 'drain');
}

const colours: Partial<Record<TailEvent['event'], number>> = {
  delivered: 32,
  retrying: 33,
  abandoned: 33,
  dead: 31,
  released: 2,
  discarded: 2,
};

function line(event: TailEvent): string {
  const { messageId, destination, topic, tenantId, key, sequence, tries, latencyMs } = event;
  const isColoured = process.stdout.isTTY && !process.env['NO_COLOR'];
  const colour = isColoured ? colours[event.event] : undefined;
  const word = event.event.padEnd(9);
  return [
    event.at.toISOString(),
    colour === undefined ? word : `\u001B[${colour}m${word}\u001B[0m`,
    messageId,
    topic === null ? '' : plain(topic),
    destination === null ? '' : `→ ${destination}`,
    key === null ? '' : `key ${plain(key)}${sequence === null ? '' : ` #${sequence}`}`,
    tenantId === null ? '' : `tenant ${plain(tenantId)}`,
    tries === null ? '' : `try ${tries}`,
    latencyMs === null ? '' : `${latencyMs} ms`,
    ...[event.errorCode, event.remoteCode, event.error].map((text) => plain(text ?? '')),
  ]
    .filter((part) => part !== '')
    .join('  ');
}

/** What other systems said must not command the terminal. */
function plain(text: string): string {
  return text
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/[\p{Cc}\p{Cf}]/gu, '\uFFFD')
    .slice(0, 120);
}
