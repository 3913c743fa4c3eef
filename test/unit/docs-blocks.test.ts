// Keeps the code in the documents correct: blocks of JavaScript, TypeScript, Python and Go are part of an example that a
// test runs, and each command exists with its flags. test/database/docs-blocks.test.ts runs the SQL.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';

import { commands } from '../../src/cli/commands.js';
import { checks } from '../../src/doctor/doctor.js';

type Block = { file: string; line: number; language: string; text: string };

const { blocks, documents } = (await import(path.resolve('scripts/docs-blocks.mjs'))) as {
  blocks: (language?: string) => Block[];
  documents: () => { file: string; text: string }[];
};

const place = ({ file, line }: Block) => `${file}:${line}`;

test('every block has a language that is checked, or is marked as output', () => {
  const kinds = new Set(['js', 'ts', 'py', 'go', 'sh', 'sql', 'text', 'mermaid', 'yaml']);
  // test/database/scheduled-drains.test.ts runs these, for this page only
  const run = new Set(['crontab', 'shell', 'psql']);
  const isKnown = ({ file, language }: Block) =>
    kinds.has(language) || (run.has(language) && file === 'docs/guides/scheduled-drains.md');
  expect(blocks().filter((block) => !isKnown(block))).toEqual([]);
  expect(blocks().length).toBeGreaterThan(30);
});

describe('JavaScript, TypeScript, Python and Go', () => {
  const examples = readdirSync('examples', { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(mjs|js|ts|py|go)$/.test(name) && !name.includes('node_modules'))
    .map((name) => readFileSync(path.join('examples', name), 'utf8'));

  const shown = ['js', 'ts', 'py', 'go'].flatMap((language) => blocks(language));
  test.each(shown.map((block) => [place(block), block.text]))(
    '%s is copied verbatim from an example',
    (_where, text) => {
      expect(
        examples.some((example) => example.includes(text)),
        text,
      ).toBe(true);
    },
  );
});

test.each(blocks('yaml').map((block) => [place(block), block.text]))(
  '%s is copied verbatim from a Kubernetes file',
  (_where, text) => {
    expect(readFileSync('deploy/kubernetes/drain-cronjob.yaml', 'utf8')).toContain(text);
  },
);

describe('commands', { timeout: 60_000 }, () => {
  const scripts = (
    JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> }
  ).scripts;
  const lines = blocks('sh').flatMap((block) =>
    block.text
      .trim()
      .split(/\n|&& /)
      .map((line) => [place(block), line.trim()] as const),
  );
  const inline = documents().flatMap(({ file, text }) =>
    [...text.matchAll(/`((?:npx )?waybill [a-z][^`]*|np[mx] [^`]*|node [^`]*)`/g)].map(
      (match) => [file, match[1] ?? ''] as const,
    ),
  );

  test.each([...lines, ...inline])('%s: %s', async (where, line) => {
    const recipe = /^docs\/start\/recipes\/([\w-]+)\.md/.exec(where)?.[1];
    expect(await problemWith(line, recipe)).toBeUndefined();
  });

  test('a command or a flag that does not exist is found', async () => {
    expect(await problemWith('npx waybill migrate sideways')).toMatch(/no command sideways/);
    expect(await problemWith('npx waybill drain --max-hours 1')).toMatch(/no --max-hours/);
    expect(await problemWith('waybill status everything')).toMatch(/no argument/);
    expect(await problemWith('npx waybill doctor no_such_check')).toMatch(/no check no_such_check/);
    expect(await problemWith('npm run nothing')).toMatch(/no script nothing/);
    expect(await problemWith('node scripts/nothing.mjs')).toMatch(/no file/);
    expect(await problemWith('python nothing.py', 'python')).toMatch(/no file/);
    expect(await problemWith('python worker.py')).toMatch(/what is/);
  });

  /** Programs of other languages run only in recipes, with a file of the recipe as the last word. */
  const otherPrograms = new Set(['go', 'pip', 'psql', 'python']);

  async function problemWith(line: string, recipe?: string): Promise<string | undefined> {
    const [program = '', first = '', ...rest] = line.split(' ');
    if (recipe !== undefined && otherPrograms.has(program)) {
      const file = path.join('examples/recipes', recipe, rest.at(-1) ?? first);
      return existsSync(file) ? undefined : `no file ${file}`;
    }
    if (program === 'npx' && first === 'waybill') return problemWithWaybill(rest);
    if (program === 'waybill') return problemWithWaybill([first, ...rest]);
    if (program === 'npx')
      return existsSync(`node_modules/.bin/${first}`) ? undefined : `no program ${first}`;
    if (program === 'node') return existsSync(first) ? undefined : `no file ${first}`;
    if (program === 'npm') {
      const script = first === 'run' ? (rest[0] ?? '') : first;
      return ['audit', 'ci', 'install'].includes(script) || script in scripts
        ? undefined
        : `no script ${script}`;
    }
    return /^export DATABASE_((DIRECT|REPLICA)_)?URL=/.test(line) ? undefined : `what is ${line}?`;
  }
});

/** Resolves the subcommands, then looks for each flag. */
async function problemWithWaybill([name = '', ...rest]: string[]): Promise<string | undefined> {
  let command: Command | undefined = await commands[name]?.();
  if (command === undefined) return `no command ${name}`;
  while (command.commands.length > 0 && rest[0]?.startsWith('-') === false) {
    const child: Command | undefined = command.commands.find((each) => each.name() === rest[0]);
    if (child === undefined) return `no command ${rest[0]}`;
    command = child;
    rest.shift();
  }
  const { options, registeredArguments } = command;
  const unknown = rest
    .filter((word) => /^--?[a-z]/.test(word))
    .find((flag) => !options.some(({ long, short }) => long === flag || short === flag));
  if (unknown !== undefined) return `no ${unknown}`;
  const codes = name === 'doctor' ? rest.filter((word) => /^\w+$/.test(word)) : [];
  const strange = codes.find((code) => !checks.some((check) => check.code === code));
  if (strange !== undefined) return `no check ${strange}`;
  const hasArgument = rest.length > 0 && !rest[0]?.startsWith('-');
  return hasArgument && registeredArguments.length === 0 ? `no argument ${rest[0]}` : undefined;
}
