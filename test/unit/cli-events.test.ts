// `waybill events` as users run it: the built program and a configuration file, without a database.

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { describe, expect, it } from 'vitest';

import { cli, json, packageUrl, temporaryDirectory } from '../support/cli.js';

const zodUrl = pathToFileURL(path.resolve('node_modules/zod/index.js')).href;

/** A directory with a configuration whose events are given as source text. */
function project(events: string): { cwd: string; change: (events: string) => void } {
  const cwd = temporaryDirectory();
  const change = (source: string) =>
    writeFileSync(
      path.join(cwd, 'waybill.config.mjs'),
      `import { defineEvents } from ${JSON.stringify(packageUrl)};\nimport { z } from ${JSON.stringify(zodUrl)};\n` +
        `export default { destinations: {}, routes: [], events: ${source} };\n`,
    );
  change(events);
  return { cwd, change };
}

const first = `defineEvents({
  'user.registered': z.object({ userId: z.number(), email: z.string().optional() }),
  'user.left': z.object({ userId: z.number() }),
})`;

describe('waybill events', { timeout: 60_000 }, () => {
  it('list shows events, versions and properties', async () => {
    const { cwd } = project(
      `defineEvents({
        'user.left.v3': z.object({ a: z.string().optional(), b: z.number() }),
        n: z.number(),
        either: z.union([z.object({ a: z.string() }), z.object({ b: z.string() }), z.string()]),
        nothing: z.undefined(),
        whatever: z.unknown(),
      })`,
    );
    const table = await cli(['events'], { cwd });
    expect(table).toMatchObject({ code: 0, stderr: '' });
    expect(table.stdout).toMatch(/^user\.left\.v3 +user\.left +3 +zod +a\?, b$/m);
    expect(json(await cli(['events', 'list', '--json'], { cwd }))).toEqual([
      {
        topic: 'user.left.v3',
        event: 'user.left',
        version: 3,
        library: 'zod',
        payload: ['a?', 'b'],
      },
      ...Object.entries({
        n: ['number'],
        either: ['a', 'b', 'string'],
        nothing: ['null'],
        whatever: ['anything'],
      }).map(([topic, payload]) => ({ topic, event: topic, version: 1, library: 'zod', payload })),
    ]);
  });

  it('asyncapi writes to standard output, or into a file whose other parts it keeps', async () => {
    const { cwd } = project(first);
    const shown = await cli(['events', 'asyncapi'], { cwd });
    expect(json(shown)).toMatchObject({ asyncapi: '3.0.0', info: { title: 'Events' } });
    const file = path.join(cwd, 'asyncapi.json');
    writeFileSync(file, JSON.stringify({ info: { title: 'Shop', version: '2.0.0' } }));
    const wrote = await cli(['events', 'asyncapi', '--output', 'asyncapi.json'], { cwd });
    expect(wrote).toEqual({ code: 0, stdout: '', stderr: 'wrote 2 events to asyncapi.json\n' });
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({
      ...(json(shown) as object),
      info: { title: 'Shop', version: '2.0.0' },
    });
  });

  it.each([
    [
      { name: 'shop' },
      /package\.json is not an AsyncAPI 3 document, it has the field "name": give/,
    ],
    [
      { asyncapi: '2.6.0' },
      /package\.json is not an AsyncAPI 3 document, it is of version "2\.6\.0"/,
    ],
  ])('asyncapi does not overwrite another file: %j', async (content, words) => {
    const { cwd } = project(first);
    const file = path.join(cwd, 'package.json');
    writeFileSync(file, JSON.stringify(content));
    const refused = await cli(['events', 'asyncapi', '--output', 'package.json'], { cwd });
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toMatch(words);
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(content);
  });

  it('check distinguishes no changes, compatible changes and breaking changes by exit code', async () => {
    const { cwd, change } = project(first);
    await cli(['events', 'asyncapi', '-o', 'asyncapi.json'], { cwd });
    expect(await cli(['events', 'check'], { cwd })).toEqual({
      code: 0,
      stdout: 'nothing changed\n',
      stderr: '',
    });

    change(first.replace('email:', 'name: z.string().optional(), email:'));
    const compatible = await cli(['events', 'check'], { cwd });
    expect(compatible).toMatchObject({ code: 0, stderr: '' });
    expect(compatible.stdout).toMatch(/^compatible +user\.registered +payload\.name +was added$/m);

    change(`defineEvents({
      'user.registered': z.object({ userId: z.string(), plan: z.string() }),
      'user.invited': z.object({}),
    })`);
    const broken = await cli(['events', 'check'], { cwd });
    expect(broken.code).toBe(6);
    expect(
      broken.stdout
        .trim()
        .split('\n')
        .map((line) => line.replaceAll(/ +/g, ' ')),
    ).toEqual([
      'verdict event path detail',
      'breaking user.left was removed',
      'breaking user.registered payload.email was removed',
      'breaking user.registered payload.plan was added, and is required',
      'breaking user.registered payload.userId is string, was number',
      'compatible user.invited was added',
    ]);
    expect(broken.stderr).toMatch(
      /^4 of 5 changes are breaking: .*user\.left\.v2.*--output asyncapi\.json/,
    );

    const inJson = await cli(['events', 'check', 'asyncapi.json', '--json'], { cwd });
    expect(inJson.code).toBe(6);
    const { breaking, compatible: fine } = json(inJson) as {
      breaking: unknown[];
      compatible: unknown[];
    };
    expect(breaking[0]).toEqual({
      event: 'user.left',
      path: null,
      change: 'event_removed',
      breaking: true,
      detail: 'was removed',
    });
    expect([breaking.length, fine.length]).toEqual([4, 1]);

    await cli(['events', 'asyncapi', '-o', 'asyncapi.json'], { cwd });
    expect(await cli(['events', 'check'], { cwd })).toMatchObject({ code: 0 });
  });

  it.each([
    [
      'no events',
      'undefined',
      ['list'],
      2,
      /the configuration has no events: add events: defineEvents/,
    ],
    [
      'schemas alone',
      '{ a: z.string() }',
      ['list'],
      2,
      /config\.events is .*: make it with defineEvents/,
    ],
    [
      'no description',
      'defineEvents({ a: z.bigint() })',
      ['asyncapi'],
      2,
      /events\["a"\] cannot be described: zod says/,
    ],
    [
      'no previous document',
      first,
      ['check', 'old.json'],
      3,
      /there is no old\.json to compare with: write it with/,
    ],
    [
      'a file that is not JSON',
      first,
      ['check', 'waybill.config.mjs'],
      2,
      /waybill\.config\.mjs cannot be read/,
    ],
  ])('with %s it prints the remedy', async (_what, events, args, code, words) => {
    const { cwd } = project(events);
    const finished = await cli(['events', ...args], { cwd });
    expect(finished).toMatchObject({ code, stdout: '' });
    expect(finished.stderr).toMatch(words);
  });

  it.each(['list', 'asyncapi', 'check'])('%s prints its help', async (name) => {
    const { code, stdout } = await cli(['events', name, '--help']);
    expect(code).toBe(0);
    expect(stdout).toContain('Examples:');
  });
});
