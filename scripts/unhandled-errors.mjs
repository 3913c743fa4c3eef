// Reporter of vitest: writes how many errors of a run happened outside of its tests, which the JSON report lacks.

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

export const unhandledErrorsFile = 'coverage/test-unhandled-errors';

/** @implements {import('vitest/node').Reporter} */
export default class UnhandledErrors {
  /** @param {unknown} _modules @param {readonly unknown[]} errors */
  onTestRunEnd(_modules, errors) {
    mkdirSync(dirname(unhandledErrorsFile), { recursive: true });
    writeFileSync(unhandledErrorsFile, String(errors.length));
  }
}
