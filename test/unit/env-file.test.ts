// The .env file of the working directory: it adds variables that are not set, and its values are never shown.

import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { loadEnvFile } from '../../src/cli/env-file.js';
import { cli, temporaryDirectory } from '../support/cli.js';

function fileWith(text: string, name = '.env'): string {
  const file = path.join(temporaryDirectory(), name);
  writeFileSync(file, text);
  return file;
}

/** What a command sees. */
function loaded(text: string, given: Record<string, string> = {}): Record<string, string> {
  const environment = { WAYBILL_ENV_FILE: fileWith(text), ...given };
  expect(loadEnvFile(environment)).toBeUndefined();
  const { WAYBILL_ENV_FILE: _file, ...others } = environment;
  return others;
}

describe('variables', () => {
  it('are added unless they are set, even to nothing', () => {
    const text = `\uFEFF# a comment\nexport WAYBILL_SCHEMA="queue"\nPGUSER=ada\nPGHOST=db\n`;
    expect(loaded(text)).toEqual({ WAYBILL_SCHEMA: 'queue', PGUSER: 'ada', PGHOST: 'db' });
    expect(loaded(text, { PGUSER: '', WAYBILL_SCHEMA: 'own' })).toEqual({
      WAYBILL_SCHEMA: 'own',
      PGUSER: '',
      PGHOST: 'db',
    });
  });

  it.each([
    ['DATABASE_URL', 'DATABASE_URL_FILE'],
    ['DATABASE_URL_FILE', 'DATABASE_URL'],
    ['DATABASE_URL', 'DATABASE_DIRECT_URL'],
    ['DATABASE_URL', 'DATABASE_REPLICA_URL'],
    ['DATABASE_URL', 'PGPASSWORD'],
    ['PGHOST', 'DATABASE_URL'],
    ['PGDATABASE', 'PGPORT'],
  ])(
    'that name a database are taken from one place: %s is set, %s of the file is not used',
    (given, other) => {
      expect(loaded(`${other}=b\nWAYBILL_SCHEMA=queue`, { [given]: 'a' })).toEqual({
        [given]: 'a',
        WAYBILL_SCHEMA: 'queue',
      });
    },
  );
});

describe('a command', { timeout: 60_000 }, () => {
  const address = 'postgresql://ada:se-cr-et@127.0.0.1:1/app';

  it('uses .env of its directory, and shows no value of it', async () => {
    const cwd = path.dirname(fileWith(`DATABASE_URL=${address}\n`));
    const { code, stderr, stdout } = await cli(['status'], { cwd });
    expect(code).toBe(1);
    expect(stderr).toContain('127.0.0.1:1');
    expect(stderr + stdout).not.toContain('se-cr-et');
  });

  it('uses another file, or none, if WAYBILL_ENV_FILE says so', async () => {
    const file = fileWith(`DATABASE_URL=${address}\n`, '.env.local');
    const cwd = path.dirname(file);
    const run = async (WAYBILL_ENV_FILE: string) =>
      (await cli(['status'], { cwd, environment: { WAYBILL_ENV_FILE } })).stderr;
    expect(await run('.env.local')).toContain('127.0.0.1:1');
    expect(await run('')).not.toContain('127.0.0.1:1');
    expect(await run('missing')).toContain('missing is not used, because it cannot be read');
  });

  it('works beside a file that cannot be read, and says so', async () => {
    const cwd = temporaryDirectory();
    symlinkSync('.env', path.join(cwd, '.env'));
    const { code, stderr } = await cli(['--version'], { cwd });
    expect(code).toBe(0);
    expect(stderr).toContain('.env is not used, because it cannot be read');
  });

  it('works beside a directory of that name', async () => {
    const cwd = temporaryDirectory();
    mkdirSync(path.join(cwd, '.env'));
    expect(await cli(['--version'], { cwd })).toMatchObject({ code: 0, stderr: '' });
  });
});
