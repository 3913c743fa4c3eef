// Requirements report: prints which tests prove which requirement, from docs/internals/requirements.md and vitest's
// JSON reports. Fails if the two disagree: a requirement marked done without a passing test, or a test that names an
// unknown id. So the list cannot claim more than the tests show. Usage: node scripts/requirements.mjs [report.json
// …]

import { existsSync, readFileSync } from 'node:fs';

const listFile = 'docs/internals/requirements.md';
const defaultReport = 'coverage/test-report.json';

/** @typedef {{ state: 'done' | 'open', tests: Map<string, Set<string>> }} Requirement tests: title → statuses */

/** @returns {Map<string, Requirement>} */
function readRequirements() {
  const requirements = new Map();
  for (const line of readFileSync(listFile, 'utf8').split('\n')) {
    const row = /^\|\s*([A-Z]\d+)\s*\|\s*([^|]*?)\s*\|/.exec(line);
    if (row === null) continue;
    const [, id, state] = row;
    if (state !== 'done' && state !== 'open')
      complain(`${listFile}: ${id} is "${state}", not done or open`);
    if (requirements.has(id)) complain(`${listFile}: ${id} occurs twice`);
    requirements.set(id, { state, tests: new Map() });
  }
  if (requirements.size === 0) complain(`${listFile} has no rows`);
  return requirements;
}

/** @param {string} file @returns {{ title: string, status: string }[]} */
function readTests(file) {
  if (!existsSync(file)) {
    console.error(`There is no report ${file}; \`npm test\` writes it.`);
    process.exit(1);
  }
  /** @type {{ testResults: { assertionResults: { fullName: string, status: string }[] }[] }} */
  const report = JSON.parse(readFileSync(file, 'utf8'));
  return report.testResults.flatMap(({ assertionResults }) =>
    assertionResults.map(({ fullName, status }) => ({ title: fullName, status })),
  );
}

/** @param {string} problem */
function complain(problem) {
  problems.push(problem);
}

/** @type {string[]} */
const problems = [];
const requirements = readRequirements();
const families = [...new Set([...requirements.keys()].map((id) => id.charAt(0)))].join('');
const idPattern = new RegExp(`\\b[${families}][1-9]\\d?\\b`, 'g');
const reports = process.argv.length > 2 ? process.argv.slice(2) : [defaultReport];

for (const { title, status } of reports.flatMap(readTests)) {
  for (const [id] of title.matchAll(idPattern)) {
    const requirement = requirements.get(id);
    if (requirement === undefined) {
      complain(`the test "${title}" names ${id}, which is not in ${listFile}`);
      continue;
    }
    // The same title runs in several projects; it counts once, with all its statuses.
    requirement.tests.set(title, (requirement.tests.get(title) ?? new Set()).add(status));
  }
}

for (const [id, { state, tests }] of requirements) {
  console.log(`${id.padEnd(3)} ${state}`);
  for (const [title, statuses] of tests) console.log(`      ${[...statuses].join(', ')}: ${title}`);
  if (state !== 'done') continue;
  const statuses = new Set([...tests.values()].flatMap((each) => [...each]));
  if (tests.size === 0) complain(`${id} is marked done but no test names it`);
  else if (!statuses.has('passed')) complain(`${id} is marked done but none of its tests passed`);
  else if (statuses.has('failed')) complain(`${id} is marked done but a test of it failed`);
}

const done = [...requirements.values()].filter(({ state }) => state === 'done').length;
console.log(`\n${done} of ${requirements.size} requirements done`);
for (const problem of new Set(problems)) console.error(`problem: ${problem}`);
if (problems.length > 0) process.exit(1);
