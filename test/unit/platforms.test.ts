// Platforms that the tests do not run on: what Waybill says there, and that nothing else needs a POSIX shell.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { platformNote, refusedAccount } from '../../src/dev/windows.js';

/** The words of PostgreSQL's check_root() on Windows. */
const refusal =
  'Execution of PostgreSQL by a user with administrative permissions is not\npermitted.\n' +
  'The server must be started under an unprivileged user ID to prevent\npossible system security compromises.';

describe('the embedded PostgreSQL on Windows', () => {
  it('X1 says in one line what a killed process leaves behind, and nothing on other platforms', () => {
    expect(platformNote('win32')).toMatch(/^On Windows, stop with Ctrl-C: .*keeps running.*files/);
    expect(platformNote('win32')).not.toContain('\n');
    expect(platformNote('linux')).toBeUndefined();
    expect(platformNote('darwin')).toBeUndefined();
  });

  it('X1 says what an administrator can do instead', () => {
    expect(refusedAccount(refusal, 'win32')).toMatch(/administrator rights.*DATABASE_URL/);
    expect(refusedAccount('FATAL:  could not create shared memory', 'win32')).toBeUndefined();
    expect(refusedAccount(refusal, 'linux')).toBeUndefined();
  });
});

describe('a POSIX shell', () => {
  it('X1 is needed by no script of the package', () => {
    const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as {
      scripts: Record<string, string>;
    };
    expect(Object.keys(scripts)).toContain('start');
    // cmd.exe knows `&&` and `cd`, but no variables before a command, quotes, `;` or the usual programs
    const posix = /[;$'`|]|(^|&& )(\w+=|(rm|cp|mv|mkdir|cat|export|sh|bash|\.\/)\b)/;
    expect(Object.entries(scripts).filter(([, script]) => posix.test(script))).toEqual([]);
    expect('FORCE=1 vite build').toMatch(posix);
  });

  it('X1 is started only by the embedded PostgreSQL, where it does not run on Windows', () => {
    const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.ts'),
    );
    const starting = files.filter((name) =>
      /'\/bin\/|shell: true|\bexec(Sync)?\(/.test(
        readFileSync(path.join('src', name), 'utf8').replaceAll(/\.exec\(/g, ''),
      ),
    );
    expect(starting.map((name) => name.replaceAll('\\', '/')).toSorted()).toEqual([
      'dev/postgres-binaries.ts',
      'dev/server-process.ts',
    ]);
  });
});
