// waybill events: writes the typed events of the configuration as an AsyncAPI document, compares them with an earlier
// document, and lists them. Needs no database.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';

import { Command } from 'commander';

import { ConfigurationError, errorText, shown } from '../core/errors.js';
import { asyncApiDocument, resolvePointer } from '../producer/events/asyncapi.js';
import type { AsyncApiDocument } from '../producer/events/asyncapi.js';
import { eventChanges } from '../producer/events/changes.js';
import type { EventChange } from '../producer/events/changes.js';
import { jsonSchemaOf } from '../producer/events/json-schema.js';
import { followed } from '../producer/events/shapes.js';
import type { Resolve } from '../producer/events/shapes.js';
import {
  eventsKind,
  nextVersion,
  schemaOf,
  versionOf,
} from '../producer/events/event-definitions.js';
import type { DefinedEvents, EventDefinition } from '../producer/events/event-definitions.js';
import { loadConfig } from './config-file.js';
import { CommandError, exitCode, note, print, printJson, printTable } from './output.js';

type Flags = { config?: string; json?: boolean };

const defaultFile = 'asyncapi.json';
const documentFields =
  /^(asyncapi|id|info|servers|defaultContentType|channels|operations|components|x-.*)$/;

export function eventsCommand(): Command {
  const command = new Command('events').description(
    'list the typed events of the configuration, describe them, and find breaking changes',
  );

  shared(command.command('list', { isDefault: true }))
    .description('show each event with its version and the properties of its payload')
    .addHelpText('after', '\nExamples:\n  $ waybill events list\n  $ waybill events list --json')
    .action(async (flags: Flags) => {
      const { definitions } = await configuredEvents(flags);
      const rows = Object.entries(definitions).map(([topic, definition]) => row(topic, definition));
      if (flags.json) printJson(rows);
      else printTable(rows, ['topic', 'event', 'version', 'library', 'payload']);
    });

  shared(command.command('asyncapi'), { json: false })
    .description('write an AsyncAPI 3 document of the events')
    .option('-o, --output <file>', 'write it there instead of to standard output')
    .addHelpText(
      'after',
      '\nOther parts of an existing file (info, servers, components) are kept.\n\nExamples:\n  $ waybill events asyncapi\n  $ waybill events asyncapi --output asyncapi.json',
    )
    .action(async (flags: Flags & { output?: string }) => {
      const events = await configuredEvents(flags);
      const { output } = flags;
      const earlier = output !== undefined && existsSync(output) ? readOwnDocument(output) : {};
      const document = asyncApiDocument(events, earlier);
      const text = JSON.stringify(document, null, 2);
      if (output === undefined) return print(text);
      writeFileSync(output, `${text}\n`);
      note(`wrote ${Object.keys(document.channels).length} events to ${output}`);
    });

  shared(command.command('check'))
    .description('compare the events with the last AsyncAPI document, and show breaking changes')
    .argument('[file]', 'the last document', defaultFile)
    .addHelpText(
      'after',
      `\nExit codes: 0 no breaking change, ${exitCode.breakingChange} breaking changes, ${exitCode.notFound} there is no such file.\n\nExamples:\n  $ waybill events check\n  $ waybill events check published.json --json`,
    )
    .action(async (file: string, flags: Flags) => {
      const events = await configuredEvents(flags);
      if (!existsSync(file)) {
        throw new CommandError(
          exitCode.notFound,
          `there is no ${file} to compare with: write it with waybill events asyncapi --output ${file}, and keep it with your code`,
        );
      }
      const changes = eventChanges(readDocument(file), file, asyncApiDocument(events));
      report(changes, file, flags.json ?? false);
    });
  return command;
}

function shared(command: Command, { json } = { json: true }): Command {
  command.option(
    '-c, --config <file>',
    'the configuration file (default: waybill.config.ts, .mts, .js or .mjs in this directory)',
  );
  return json ? command.option('--json', 'answer in JSON') : command;
}

async function configuredEvents(flags: Flags): Promise<DefinedEvents> {
  const { events } = await loadConfig(flags.config);
  const found = eventsKind('config.events', events);
  if (found !== undefined) return found;
  throw new ConfigurationError(
    'the configuration has no events: add events: defineEvents({ … }) to it',
  );
}

function readDocument(file: string): Partial<AsyncApiDocument> {
  let document: unknown;
  try {
    document = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new ConfigurationError(`${file} cannot be read: ${errorText(error)}`, { cause: error });
  }
  if (typeof document === 'object' && document !== null && !Array.isArray(document))
    return document;
  throw new ConfigurationError(`${file} is not an AsyncAPI document: it has no object`);
}

/** Reads the document that will be overwritten, and refuses a file that is not one: it would be lost. */
function readOwnDocument(file: string): Partial<AsyncApiDocument> {
  const document = readDocument(file);
  const asyncapi: unknown = document.asyncapi;
  const foreign = Object.keys(document).find((field) => !documentFields.test(field));
  const why =
    asyncapi !== undefined && !(typeof asyncapi === 'string' && asyncapi.startsWith('3.'))
      ? `it is of version ${shown(asyncapi)}`
      : foreign && `it has the field ${shown(foreign)}`;
  if (why === undefined) return document;
  throw new ConfigurationError(
    `${file} is not an AsyncAPI 3 document, ${why}: give another file, or remove this one first`,
  );
}

function row(topic: string, definition: EventDefinition): Record<string, unknown> {
  const schema = jsonSchemaOf(topic, definition);
  return {
    topic,
    ...versionOf(topic),
    library: schemaOf(definition)['~standard'].vendor,
    payload: [...new Set(propertiesOf(schema, (reference) => resolvePointer(schema, reference)))],
  };
}

/** The properties of a payload and of its alternatives, or its types. */
function propertiesOf(schema: unknown, resolve: Resolve): string[] {
  const found = followed(schema, resolve) as {
    type?: string | readonly string[];
    properties?: object;
    required?: readonly string[];
    allOf?: readonly unknown[];
    anyOf?: readonly unknown[];
    oneOf?: readonly unknown[];
  };
  const { type = 'anything', properties = {}, required = [] } = found;
  const names = Object.keys(properties);
  if (names.length > 0) return names.map((name) => (required.includes(name) ? name : `${name}?`));
  const parts = found.allOf ?? found.anyOf ?? found.oneOf;
  return parts?.flatMap((part) => propertiesOf(part, resolve)) ?? [type].flat();
}

function report(changes: readonly EventChange[], file: string, json: boolean): void {
  const breaking = changes.filter((change) => change.breaking);
  const compatible = changes.filter((change) => !change.breaking);
  if (json) {
    printJson({ breaking, compatible });
  } else if (changes.length === 0) {
    print('nothing changed');
  } else {
    const rows = changes.map((change) => ({
      ...change,
      verdict: change.breaking ? 'breaking' : 'compatible',
    }));
    printTable(rows, ['verdict', 'event', 'path', 'detail']);
  }
  const [first] = breaking;
  if (first === undefined) return;
  note(
    `${breaking.length} of ${changes.length} changes are breaking: leave the event as it is and define the new shape beside it (${nextVersion(first.event)}), or accept them with waybill events asyncapi --output ${file}`,
  );
  process.exitCode = exitCode.breakingChange;
}
