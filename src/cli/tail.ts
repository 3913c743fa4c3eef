// waybill tail: shows events as they happen, one line each, until Ctrl-C. It waits for a database that is unavailable,
// and says how many events it left out when there are too many to read.

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';

import { Command, Option } from 'commander';

import { isTransient } from '../database/connection.js';
import type { Database } from '../database/connection.js';
import type { Replica } from '../features/replicas/replica.js';
import { tailEvents } from '../listing/tail-events.js';
import type { TailEvent, TailWindow } from '../listing/tail-events.js';
import { Tail } from '../listing/tail.js';
import type { TailFilter } from '../listing/tail.js';
import { errorText } from '../core/errors.js';
import { visible } from '../core/visible-text.js';
import { time } from './arguments.js';
import { connectionFailure } from './connection-failure.js';
import { withDatabase } from './connection-options.js';
import { requireDestination } from './destinations.js';
import { messageFilterOf, messageOptions } from './message-filter.js';
import type { MessageFlags } from './message-filter.js';
import { note } from './output.js';
import { readingOptions, replicaOf } from '../features/replicas/flags.js';
import type { ReadingFlags } from '../features/replicas/flags.js';
import { untilStopped } from './stop-signal.js';

type Flags = ReadingFlags &
  MessageFlags & {
    event?: TailFilter['event'];
    since?: Date;
  };

const lookEveryMs = 500;
/** Pause between two tries to reach an unavailable database. */
const reconnectMs = 1000;
/** The most lines shown at a time. */
const linesAtMost = 500;

export function tailCommand(): Command {
  const command = readingOptions(new Command('tail'))
    .description('follow enqueued messages, and attempts with their outcomes')
    .addOption(new Option('--event <event>', 'only this kind of event').choices(tailEvents));
  return messageOptions(command, {
    topic: 'of this topic; `order.*` for every topic that begins with `order.`',
    errorCode: 'attempts that failed with this code',
  })
    .option('--since <time>', 'begin with events at or after this time (ISO 8601)', time)
    .addHelpText(
      'after',
      '\nWith --json each line is an object. Ctrl-C ends it, with exit code 0.\n\nExamples:\n  $ waybill tail\n  $ waybill tail --event dead --destination crm\n  $ waybill tail --topic "user.*" --since 2026-01-31T08:00:00Z --json',
    )
    .action(async (flags: Flags) => {
      const stop = new AbortController();
      void untilStopped().then(() => stop.abort());
      // the reader of the output (head, less) has gone
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
  const { event, since, destination } = flags;
  const filter: TailFilter = messageFilterOf(flags, { event, since });
  if (destination !== undefined) await requireDestination(database, destination);
  const tail = await Tail.start(database, filter, replica);
  note('following; Ctrl-C ends it');
  let away = false;
  while (!signal.aborted) {
    let pauseMs = lookEveryMs;
    try {
      const window = await tail.look(linesAtMost);
      if (away) note('connected again: continuing');
      away = false;
      await show(window, flags.json ?? false);
    } catch (error) {
      if (!isTransient(error)) throw error;
      if (!away)
        note(
          `the database is unavailable (${connectionFailure(error) ?? errorText(error)}): reconnecting`,
        );
      away = true;
      pauseMs = reconnectMs;
    }
    await delay(pauseMs, undefined, { signal }).catch(() => {});
  }
}

async function show({ events, more, unseen }: TailWindow, json: boolean): Promise<void> {
  const lines = events.map((event) => (json ? visible(JSON.stringify(event)) : line(event)));
  // the oldest events are left out
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
  zombie_requeue: 33,
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

/** Removes control characters: text of other systems must not control the terminal. */
function plain(text: string): string {
  return visible(text.replaceAll(/\s+/g, ' ').slice(0, 120));
}
