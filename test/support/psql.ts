// Runs the psql commands of the examples' documents, with the real psql. Without the program those tests are skipped with
// a message.

import { readFileSync } from 'node:fs';

import { runProgram } from './cli.js';
import type { Finished } from './cli.js';
import { hasPrograms } from './programs.js';

export const hasPsql = hasPrograms({ psql: 'postgresql-client-15' });

/** The blocks of plain text in a document. */
export function textBlocks(file: string): string[] {
  const found = readFileSync(file, 'utf8').matchAll(/```text\n([^`]+)```/g);
  return [...found].map(([, text = '']) => text);
}

/** The command of a document that runs this file with psql. */
export function psqlCommand(document: string, file: string): string {
  const found = textBlocks(document).find((text) => text.startsWith('psql') && text.includes(file));
  if (found === undefined) throw new Error(`${document} has no psql command with ${file}`);
  return found;
}

/** Runs a command in the checkout, as a reader would. */
export async function runCommand(command: string, url: string): Promise<Finished> {
  return runProgram('sh', ['-c', command], {
    cwd: process.cwd(),
    environment: { DATABASE_URL: url },
  }).ended();
}
