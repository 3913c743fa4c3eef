// Code filter of dead letters: an error code or an HTTP status, and causes. The routes and the command line use it.

import { codesFor, hasCode } from '../../listing/message-ranges.js';
import type { DeadLetterFilter } from './database.js';

type CodeFilter = Pick<DeadLetterFilter, 'errorCode' | 'causes'>;

/**
 * The filter for the database. An HTTP status is the code of the other side, which is a part of causes, as in the list of
 * messages. Beside causes, a code leaves those that have it, as in the groups.
 */
export function codeFilter({ errorCode, causes }: CodeFilter): CodeFilter {
  if (errorCode === undefined) return causes === undefined ? {} : { causes };
  if (causes !== undefined)
    return { causes: causes.filter((cause) => hasCode(codesOf(cause), errorCode)) };
  const [, ...withStatus] = codesFor(errorCode);
  if (withStatus.length === 0) return { errorCode };
  return { causes: [errorCode, ...withStatus.map((code) => `${code} ${errorCode}`)] };
}

/** The two codes that a cause consists of. */
function codesOf(cause: string): { errorCode: string; remoteCode: string | null } {
  const end = cause.indexOf(' ');
  if (end === -1) return { errorCode: cause, remoteCode: null };
  return { errorCode: cause.slice(0, end), remoteCode: cause.slice(end + 1) };
}
