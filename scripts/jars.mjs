// Fetches a service that the tests run from Maven Central, with what it needs, once: `node scripts/jars.mjs elasticmq`.
// Its version is that of test/contract/services/NAME/pom.xml; each version has a folder of its own, so that an old
// one is never taken for a new one.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** @param {string} name */
function pomOf(name) {
  return fileURLToPath(new URL(`../test/contract/services/${name}/pom.xml`, import.meta.url));
}

/** Where the jars are, or would be. @param {string} name */
export function jarsOf(name) {
  const chosen = process.env[`WAYBILL_TEST_${name.toUpperCase()}`];
  if (chosen) return chosen;
  const version = /<dependency>.*?<version>(.*?)<\/version>/s.exec(
    readFileSync(pomOf(name), 'utf8'),
  )?.[1];
  return path.join(os.homedir(), '.cache', 'waybill-test', `${name}-${version}`);
}

/** @param {string} name */
function fetchJars(name) {
  const directory = jarsOf(name);
  if (existsSync(directory)) return 0;
  // into another folder first: half of it must not pass for the whole
  const unfinished = `${directory}.${process.pid}`;
  mkdirSync(path.dirname(directory), { recursive: true });
  const { status, error } = spawnSync(
    'mvn',
    [
      '--batch-mode',
      '--quiet',
      `--file=${pomOf(name)}`,
      'dependency:copy-dependencies',
      '-DincludeScope=runtime',
      `-DoutputDirectory=${unfinished}`,
    ],
    { stdio: 'inherit' },
  );
  if (status !== 0) {
    rmSync(unfinished, { recursive: true, force: true });
    process.stderr.write(`${name} could not be fetched${error ? `: ${error.message}` : ''}\n`);
    return 1;
  }
  renameSync(unfinished, directory);
  return 0;
}

const [, script, name] = process.argv;
if (script === fileURLToPath(import.meta.url)) {
  if (name === undefined || !existsSync(pomOf(name))) {
    process.stderr.write('usage: node scripts/jars.mjs elasticmq|kafka\n');
    process.exitCode = 2;
  } else process.exitCode = fetchJars(name);
}
