// Code filter of dead letters: an error code or an HTTP status, and causes. The routes and the command line use it.

import { codesFor } from '../../listing/message-ranges.js';
import type { DeadLetterFilter } from './database.js';

type CodeFilter = Pick<DeadLetterFilter, 'errorCode' | 'causes'>;

/**
 * The filter for the database. An HTTP status is the code of the other side, which is a part of causes, as in the list of
 * messages. Beside causes, a code leaves those that have it, as in the groups.
 */
export function codeFilter({ errorCode, causes }: CodeFilter): CodeFilter {
  if (errorCode === undefined) return causes === undefined ? {} : { causes };
  if (causes !== undefined) return { causes: causes.filter((cause) => hasCode(cause, errorCode)) };
  const [, ...withStatus] = codesFor(errorCode);
  if (withStatus.length === 0) return { errorCode };
  return { causes: [errorCode, ...withStatus.map((code) => `${code} ${errorCode}`)] };
}

/** Whether a code is one of the two that a cause consists of. */
function hasCode(cause: string, code: string): boolean {
  const end = cause.indexOf(' ');
  return end === -1 ? cause === code : [cause.slice(0, end), cause.slice(end + 1)].includes(code);
}
