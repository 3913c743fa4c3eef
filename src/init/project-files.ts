// Files that Waybill writes into an application's project. Existing files are kept; one of them may get text added
// (`addsTo`).

import { linkSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

export type PlannedFile = {
  path: string;
  text: string;
  /** It is there already, and is kept. */
  exists: boolean;
  /** It is there already, and `text` is its text with something added. */
  addsTo?: boolean;
};

/**
 * Writes new files, and those with added text. Each appears whole or not at all, even if the process is killed. A file
 * that appears meanwhile is an error, and stays as it is.
 */
export function writeFiles(files: readonly PlannedFile[]): void {
  for (const { path: file, text, exists, addsTo = false } of files) {
    if (exists) continue;
    mkdirSync(path.dirname(file), { recursive: true });
    const whole = `${file}.${process.pid}.tmp`;
    try {
      writeFileSync(whole, text, { flag: 'wx' });
      if (addsTo) renameSync(whole, file);
      else appear(whole, file, text);
    } finally {
      rmSync(whole, { force: true });
    }
  }
}

function appear(whole: string, file: string, text: string): void {
  try {
    linkSync(whole, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw error;
    // not every file system has links
    writeFileSync(file, text, { flag: 'wx' });
  }
}
