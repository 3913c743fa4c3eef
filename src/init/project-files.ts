// Files that Waybill writes into an application's project. Existing files are kept; one of them may get text added
// (`previousText`), unless it has changed since it was read.

import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { ConfigurationError } from '../core/errors.js';

export type PlannedFile = {
  path: string;
  text: string;
  /** It is there already, and is kept. */
  exists: boolean;
  /** The text of a file that is there already: `text` is this with something added. */
  previousText?: string;
};

/**
 * Writes new files, and those with added text. Each appears whole or not at all, even if the process is killed. A file
 * that appears or changes meanwhile is an error, and stays as it is.
 */
export function writeFiles(files: readonly PlannedFile[]): void {
  for (const file of files) refuseChanged(file);
  for (const planned of files) {
    const { path: file, text, exists, previousText } = planned;
    if (exists) continue;
    mkdirSync(path.dirname(file), { recursive: true });
    const temporaryFile = `${file}.${process.pid}.tmp`;
    try {
      writeFileSync(temporaryFile, text, { flag: 'wx' });
      refuseChanged(planned);
      if (previousText === undefined) appear(temporaryFile, file, text);
      else renameSync(temporaryFile, file);
    } finally {
      rmSync(temporaryFile, { force: true });
    }
  }
}

/** Another tool may have added something since the file was read, which would be lost. */
function refuseChanged({ path: file, previousText }: PlannedFile): void {
  if (previousText === undefined || readFileSync(file, 'utf8') === previousText) return;
  throw new ConfigurationError(
    `${file} has changed since it was read: let no other migration tool run at the same time, and run this again`,
  );
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
