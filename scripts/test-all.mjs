// Test runner of `npm test`: runs vitest, then gives files with failed tests a second try, each file alone and on a new
// database. On a busy machine a wait may time out too early; a fault of the code fails twice. Proofs get no second try:
// a message that is lost in one of two runs is lost. A run with an error outside of its tests gets none either.
// What passed only at the second try is printed at the end, and the report has the results of the second try.
// Usage: node scripts/test-all.mjs [OPTION OF VITEST | PATH …], such as `--mode full` or `test/unit`

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import { unhandledErrorsFile } from './unhandled-errors.mjs';

/** @typedef {{ status: string, fullName: string }} Test */
/** @typedef {{ name: string, status: string, assertionResults: Test[] }} File one file in one project */
/** @typedef {{ testResults: File[] }} Report as vitest's JSON reporter writes it */

const reportFile = 'coverage/test-report.json';
const secondReportFile = 'coverage/test-report-second.json';

/** When more files fail than this, the cause is not the timing of single tests. */
const mostFiles = 12;

const given = process.argv.slice(2);
const first = run(reportFile, given);
if (first.succeeded) process.exit(0);

const failed = first.report.testResults.filter(({ status }) => status === 'failed');
const files = [...new Set(failed.map(({ name }) => relative('.', name)))];
if (first.unhandledErrors > 0) {
  console.error(`\nNo second try: errors outside of tests: ${first.unhandledErrors}. See above.`);
  process.exit(1);
}
// without a failed test, vitest has failed otherwise, and has printed why
if (files.length === 0) process.exit(1);
const tests = namesOf(failed);
if (files.length > mostFiles) {
  console.error(`\nNo second try: tests of ${files.length} files failed, more than ${mostFiles}.`);
  process.exit(1);
}
console.log(`\nSecond try of these files:\n${list(tests)}\n`);
const options = await withoutPaths();
const second = run(secondReportFile, [...options, '--maxWorkers', '1', ...files], {
  WAYBILL_TEST_SECOND_TRY: '1',
});
const retried = new Set(second.report.testResults.map(({ name }) => relative('.', name)));
const kept = first.report.testResults.filter(({ name }) => !retried.has(relative('.', name)));
const merged = { ...first.report, testResults: [...kept, ...second.report.testResults] };
writeFileSync(reportFile, JSON.stringify(merged));

const unproven = files.filter((file) => !retried.has(file));
if (unproven.length > 0)
  console.error(`\nNo second try, because these are proofs:\n${list(unproven)}`);
if (!second.succeeded) console.error('\nFailed at the second try, too: see above.');
if (!second.succeeded || unproven.length > 0) process.exit(1);
console.log(`\nPassed only at the second try:\n${list(tests)}`);

/**
 * @param {string} report the file to write @param {string[]} args @param {Record<string, string>} [environment]
 * @returns {{ succeeded: boolean, report: Report, unhandledErrors: number }}
 */
function run(report, args, environment = {}) {
  for (const file of [report, unhandledErrorsFile]) rmSync(file, { force: true });
  const { status } = spawnSync(
    process.execPath,
    [
      'node_modules/vitest/vitest.mjs',
      'run',
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${report}`,
      '--reporter=./scripts/unhandled-errors.mjs',
      ...args,
    ],
    { stdio: 'inherit', env: { ...process.env, ...environment } },
  );
  // without a report vitest did not start, and has printed why
  if (!existsSync(report)) process.exit(status === 0 ? 1 : (status ?? 1));
  return {
    succeeded: status === 0,
    report: JSON.parse(readFileSync(report, 'utf8')),
    unhandledErrors: Number(readFileSync(unhandledErrorsFile, 'utf8')),
  };
}

/** The arguments without paths: without these, vitest reads the same options. */
async function withoutPaths() {
  const { parseCLI } = await import('vitest/node');
  /** @param {string[]} some */
  const optionsOf = (some) => parseCLI(['vitest', 'run', ...some]).options;
  const wanted = optionsOf(given);
  // from the end: in `--project unit unit`, the last word is the path
  return given.reduceRight((rest, _arg, place) => {
    const others = rest.toSpliced(place, 1);
    return isDeepStrictEqual(optionsOf(others), wanted) ? others : rest;
  }, given);
}

/** @param {File[]} results @returns {string[]} the failed tests; the file if it failed outside of its tests */
function namesOf(results) {
  return results.flatMap(({ name, assertionResults }) => {
    const names = assertionResults.filter(({ status }) => status === 'failed');
    const file = relative('.', name);
    return names.length === 0 ? [file] : names.map(({ fullName }) => `${file}: ${fullName}`);
  });
}

/** @param {string[]} lines */
function list(lines) {
  return lines.map((line) => `  ${line}`).join('\n');
}
