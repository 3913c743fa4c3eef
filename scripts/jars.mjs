// Downloads a Java service that the tests run, with its dependencies, from Maven Central: `node scripts/jars.mjs
// elasticmq`. The version is that of test/contract/services/NAME/pom.xml. Each version has its own folder, so an old
// one is never used in place of a new one.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** @param {string} name */
function pomOf(name) {
  return fileURLToPath(new URL(`../test/contract/services/${name}/pom.xml`, import.meta.url));
}

/** The folder of the jars, downloaded or not. @param {string} name */
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
  // into another folder first, so an interrupted download does not look complete
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
    process.stderr.write('usage: node scripts/jars.mjs elasticmq|flyway|kafka\n');
    process.exitCode = 2;
  } else process.exitCode = fetchJars(name);
}
