// Destructive commands ask; without a terminal they need --yes.

import { createInterface } from 'node:readline/promises';

import { CommandError, exitCode } from './output.js';

export async function confirm(question: string, yes: boolean): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY)
    throw new CommandError(exitCode.refused, `${question} Add --yes to do it without being asked.`);
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await prompt.question(`${question} [y/N] `);
  prompt.close();
  if (!/^y(es)?$/i.test(answer.trim()))
    throw new CommandError(exitCode.refused, 'nothing was changed');
}

/** For what sends many messages: the word is to be typed, a quick "y" is not enough. */
export async function confirmTyped(question: string, word: string, yes: boolean): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY)
    throw new CommandError(exitCode.refused, `${question} Add --yes to do it without being asked.`);
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await prompt.question(`${question} Type ${word} to do it: `);
  prompt.close();
  if (answer.trim() !== word) throw new CommandError(exitCode.refused, 'nothing was changed');
}
