// Keeps one vocabulary: the names of commands, flags, API routes and fields, screens, tables, SQL functions, settings
// and metrics consist of terms of docs/concepts.md and plain words. Statuses are the same on every surface. Retired
// names do not come back.

import { readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';

import { describe, expect, it } from 'vitest';

import { commands } from '../../src/cli/commands.js';
import { listedStatuses } from '../../src/listing/statuses.js';
import { metricCatalogue } from '../../src/telemetry/metric-catalogue.js';
import { describedRoutes } from '../support/api-routes.js';

/** Plain words that names may use without being terms. */
const plainWords = new Set(
  `access ack action active actor add after afterward age aggregate ago ahead alarm all allow answer applied apply asyncapi
   at audit auth available average back base batch before begin body brought bucket build by byte can cancel candidate change changed
   check claimed clock code column compare comparison concurrency config configuration configured count created
   dark data database day decision define definition delay delete deleted delivered depth description dev dialog died
   disable discard discarded dispatch dispatching dlq doctor done down dry duration embedded enable enabled end ended enqueue
   error exact example expire expired expiry explain explanation export fail failed failing failure fallback file find
   firing first for force forget form format from given group has header heartbeat hidden holder id ignore in info init install is
   journey json kept kind label lag last lately latency leaf lifetime limited line list load lock login logo maintain
   make many mark max mcp mend method metric migrate minute more most move moved ms nack name new newest next no notification
   notify now old oldest on open order origin out output overlap overview owner p page panel parameter path paused
   pending per percent plan planned point port position prefix primary problem processing prune query reached read
   reap reason recover reference refused released remedy remote remove rendered renew repair replayed report request
   required reseal reset response resume retire retry retrying return right rotate routed row run running sample scope
   search searched second secret send sent sentence server session set setting severity shared show signed since slot
   snapshot source sql start started state statistic step stuck subject suggestion summary sync table tail take target test text
   threshold ticket tile timeout to today
   total transaction truncate type undo unfinished unseen unserved until unwatch url usable used user vacuum value verbose
   verdict verify version wait wakeup when yes
   catalogue closed complete csv declared diagram flow followed other period progress receiver result sort volume`.split(
    /\s+/,
  ),
);

/** Retired names, and their replacements. */
const retired: [RegExp, string][] = [
  [/doorbell|sleeper|lookout|\bvigil/i, 'wake-up, listener, poll'],
  [/stream_?id\b/i, 'key_id'],
  [/suspect/i, 'quarantined'],
  [/lease_expired|abandoned/i, 'zombie'],
  [/\btally|\bticker/i, 'counters, interval task'],
  [/patience/i, 'retry window, timeout'],
  [/\bstretch(es)?\b|stretchRows|_stretch/i, 'range'],
  [/settle_(definition|destination|cursor|watch)/, 'reconcile; settle is for claims'],
  [/\bin_hand\b|\btold_at\b|\btold_since\b/, 'batch_in_flight, last_notified_at'],
];

function singular(word: string): string {
  if (/^(has|is|ms|yes)$/.test(word)) return word;
  if (/(ches|sses|xes)$/.test(word)) return word.slice(0, -2);
  if (word.endsWith('ies')) return `${word.slice(0, -3)}y`;
  if (word.endsWith('leaves')) return 'leaf';
  return /[^s]s$/.test(word) && !/(status|canvas)$/.test(word) ? word.slice(0, -1) : word;
}

const wordsOf = (name: string): string[] =>
  name
    .replaceAll(/([a-z])([A-Z])/g, '$1 $2')
    .split(/[^A-Za-z]+/)
    .filter((word) => word !== '')
    .map((word) => singular(word.toLowerCase()));

const concepts = readFileSync('docs/concepts.md', 'utf8');
const terms = [...concepts.matchAll(/^- \*\*([^*]+)\*\*: (.*)$/gm)];
const termWords = new Set(terms.flatMap(([, term = '']) => wordsOf(term)));

const filesIn = (folder: string, ending: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending))
    .map((name) => `${folder}/${name}`);
const textOf = (folder: string, ending: string): string =>
  filesIn(folder, ending)
    .map((file) => readFileSync(file, 'utf8'))
    .join('\n');
const found = (text: string, pattern: RegExp): string[] =>
  [...new Set([...text.matchAll(pattern)].map((match) => match[1] ?? ''))].toSorted();

/** The files with the types of the API's answers, as the page imports them. */
const answerFiles = found(
  [textOf('dashboard/src', '.ts'), textOf('dashboard/src', '.tsx')].join('\n'),
  /\.\.\/(src\/[\w/-]+)\.js/g,
);
const commandText = [
  textOf('src/cli', '.ts'),
  textOf('src/features', '.ts'),
  textOf('src/doctor', '.ts'),
].join('\n');

const surfaces: Record<string, string[]> = {
  commands: Object.keys(commands).toSorted(),
  routes: [...new Set(describedRoutes().map(({ path }) => path))].map((path) =>
    path.replaceAll(/\/api|\{\w+\}/g, ''),
  ),
  subcommands: found(commandText, /\.command\('([a-z-]+)/g),
  flags: found(commandText, /'(?:-\w, )?--([a-z-]+)/g),
  'API parameters': [
    ...new Set(describedRoutes().flatMap(({ parameters }) => Object.keys(parameters))),
  ].toSorted(),
  'API fields': found(
    answerFiles.map((file) => readFileSync(`${file}.ts`, 'utf8')).join('\n'),
    /^ {2}(?:readonly )?(\w+)\??: /gm,
  ),
  'SQL objects': found(readFileSync('docs/reference/sql.md', 'utf8'), /^\*\*`(\w+)`\*\*$/gm),
  settings: found(textOf('sql', '.sql'), /'waybill\.([a-z_]*[a-z])'/g),
  screens: filesIn('dashboard/src/screens', '.tsx').map((file) => basename(file, '.tsx')),
  tables: found(textOf('sql/migrations', '.sql'), /^CREATE TABLE (\w+)/gm),
  metrics: Object.keys(metricCatalogue).map((name) => name.replace(/^outbox_/, '')),
};

describe('docs/concepts.md', () => {
  it('explains each term once, in at most three sentences', () => {
    expect(terms.length).toBeGreaterThan(50);
    const names = terms.map(([, term]) => term);
    expect(new Set(names).size).toBe(names.length);
    for (const [, term, text = ''] of terms)
      expect(text.split(/[.:] [A-Z]/).length, term).toBeLessThanOrEqual(3);
  });
});

describe.each(Object.entries(surfaces))('%s', (_surface, names) => {
  it('have names', () => {
    expect(names.length).toBeGreaterThanOrEqual(3);
  });
  it.each(names)('%s consists of terms and plain words', (name) => {
    const unknown = wordsOf(name).filter((word) => !termWords.has(word) && !plainWords.has(word));
    expect(unknown, 'add a term to docs/concepts.md, or use an existing one').toEqual([]);
  });
});

it('each plain word is used in a name', () => {
  const used = new Set(Object.values(surfaces).flat().flatMap(wordsOf));
  expect([...plainWords].filter((word) => !used.has(word) || termWords.has(word))).toEqual([]);
});

it('statuses are the same in docs/concepts.md, the lists, the view and the page', () => {
  const documented = found(concepts, /^\| `(\w+)` \|/gm);
  expect([...listedStatuses].toSorted()).toEqual(documented);
  const view = readFileSync('sql/views/message_status.sql', 'utf8');
  for (const status of documented)
    expect(view, status).toMatch(new RegExp(`'${status}'|AS ${status}\\b`));
  const page = readFileSync('dashboard/src/screens/messages.tsx', 'utf8');
  expect(page).toMatch(/label: 'Status',\s+choices: listedStatuses\b/);
});

/** All files of a folder, without installed packages and generated code. */
const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (/^(node_modules|generated)$/.test(entry.name)) return [];
    const name = `${folder}/${entry.name}`;
    return entry.isDirectory() ? filesBelow(name) : [name];
  });
const searched = ['src', 'sql', 'dashboard/src', 'docs', 'bench', 'scripts', 'examples', 'test']
  .flatMap(filesBelow)
  .filter((file) => /\.(tsx?|mjs|sql|md)$/.test(file) && !file.endsWith('glossary.test.ts'));

it.each(retired)('%s is not used any more', (pattern, instead) => {
  const users = searched.filter((file) => pattern.test(readFileSync(file, 'utf8')));
  expect(users, `say ${instead}`).toEqual([]);
});
