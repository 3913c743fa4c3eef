// Confirmation of destructive commands: asks in a terminal; without one, --yes is required.

import { createInterface } from 'node:readline/promises';

import { visible } from '../core/visible-text.js';
import { CommandError, exitCode } from './output.js';

export async function confirm(question: string, yes: boolean): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY)
    throw new CommandError(exitCode.refused, `${question} Add --yes to do it without being asked.`);
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await prompt.question(visible(`${question} [y/N] `));
  prompt.close();
  if (!/^y(es)?$/i.test(answer.trim()))
    throw new CommandError(exitCode.refused, 'nothing was changed');
}

/** For commands that send many messages: the user must type the word, because a quick "y" is too easy. */
export async function confirmTyped(question: string, word: string, yes: boolean): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY)
    throw new CommandError(exitCode.refused, `${question} Add --yes to do it without being asked.`);
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await prompt.question(visible(`${question} Type ${word} to do it: `));
  prompt.close();
  if (answer.trim() !== word) throw new CommandError(exitCode.refused, 'nothing was changed');
}
