// Tools of `waybill mcp`: what the commands answer with --json, and, on request, the changes of an operator. Those of a
// feature are in its folder. Payloads, headers and answers of destinations are left out unless they are asked for.

import { choice, list, optional } from '../core/options.js';
import { findDestination, setPaused } from '../database/definitions.js';
import { checks, examine } from '../doctor/doctor.js';
import { features } from '../features/all.js';
import type { Tool, ToolContext } from '../features/feature.js';
import { explain } from '../listing/explanations.js';
import { readMessage } from '../listing/message-detail.js';
import type { MessageDetail } from '../listing/message-detail.js';
import { listMessages } from '../listing/message-list.js';
import { listedStatuses } from '../listing/statuses.js';
import {
  filters,
  given,
  messageId,
  neededWord,
  payloadFilter,
  refused,
  time,
  tool,
  word,
} from './mcp-arguments.js';
import type { Kind } from './mcp-arguments.js';
import { CommandError, exitCode } from './output.js';
import { readStatus } from './status.js';

export type ToolOptions = ToolContext & { allowChanges: boolean; payloads: boolean };

export async function toolsOf(options: ToolOptions): Promise<Tool[]> {
  const ofFeatures = await Promise.all(features.flatMap(({ tools }) => (tools ? [tools()] : [])));
  return [
    ...readingTools(options),
    ...pausingTools(options),
    ...ofFeatures.flatMap((make) => make(options)),
  ].filter(({ changes }) => options.allowChanges || !changes);
}

const checkCode: Kind<string> = (name, value) =>
  checks.find(({ code }) => code === value)?.code ??
  refused(name, value, `give ${checks.map(({ code }) => code).join(', ')}`);

function readingTools({ inDatabase, payloads }: ToolOptions): Tool[] {
  return [
    tool(
      {
        name: 'status',
        description:
          'Health of the outbox: metrics with their alarms, destinations, relays, applications.',
      },
      {},
      () => inDatabase(readStatus),
    ),
    tool(
      {
        name: 'doctor',
        description:
          'Looks for problems in the server, the schema, the relays and the deliveries, and says how to fix them.',
      },
      {
        codes: {
          schema: {
            type: 'array',
            items: { type: 'string', enum: checks.map(({ code }) => code) },
            description: 'only these checks (default: all)',
          },
          check: optional(list(checkCode, { min: 1, max: checks.length })),
        },
      },
      ({ codes }) =>
        inDatabase((database) => examine(database, codes === undefined ? {} : { only: codes })),
    ),
    tool(
      {
        name: 'explain_message',
        description: 'Why a message is not delivered yet, for each destination, and what to do.',
      },
      { id: messageId },
      ({ id }) => inDatabase((database) => explain(database, id)),
    ),
    tool(
      {
        name: 'list_messages',
        description:
          'Messages with their state at each destination, newest first. Pass `next` of the answer to continue.',
      },
      {
        status: {
          schema: { type: 'string', enum: listedStatuses },
          check: optional(choice(...listedStatuses)),
        },
        ...filters,
        namespace: word('of this namespace'),
        key: word('of this ordering key'),
        since: time('created at or after'),
        until: time('created before'),
        payload: payloadFilter(payloads),
        next: word('continue after the previous page'),
      },
      ({ limit, next, since, until, ...filter }) =>
        inDatabase((database) =>
          listMessages(database, given({ ...filter, from: since, to: until }), {
            limit,
            ...given({ next }),
          }),
        ),
    ),
    tool(
      {
        name: 'show_message',
        description: 'One message: its fields, every attempt, and why it is not delivered yet.',
      },
      { id: messageId },
      async ({ id }) => {
        const message = await inDatabase((database) => readMessage(database, id));
        if (message === null)
          throw new CommandError(
            exitCode.notFound,
            `there is no message ${id}: it was never committed, or retention has removed it`,
          );
        return payloads ? message : withoutContents(message);
      },
    ),
  ];
}

function pausingTools({ inDatabase, actor }: ToolOptions): Tool[] {
  const name = neededWord('the name of the destination');
  const set = (destination: string, paused: boolean, reason: string | null) =>
    inDatabase(async (database) => {
      await findDestination(database, destination);
      await setPaused(database, destination, paused, actor, reason);
      return paused ? { paused: destination } : { resumed: destination };
    });
  return [
    tool(
      {
        name: 'pause_destination',
        description: 'Pauses a destination: relays deliver nothing to it, and its messages wait.',
        changes: true,
      },
      { name, reason: word('the reason, for other operators') },
      (values) => set(values.name, true, values.reason ?? null),
    ),
    tool(
      {
        name: 'resume_destination',
        description: 'Resumes a paused destination.',
        changes: true,
      },
      { name },
      (values) => set(values.name, false, null),
    ),
  ];
}

function withoutContents({
  payloadText: _text,
  headers: _headers,
  attempts,
  ...fields
}: MessageDetail) {
  return { ...fields, attempts: attempts.map(({ response: _response, ...attempt }) => attempt) };
}
