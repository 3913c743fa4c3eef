// Deadline on the client, for a server that does not answer.

import { DeadlineError } from '../core/errors.js';

export async function withDeadline<T>(
  what: string,
  deadlineMs: number,
  work: Promise<T>,
  onDeadline: () => void,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      onDeadline();
      reject(new DeadlineError(what, deadlineMs));
    }, deadlineMs);
  });
  work.catch(() => {});
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}
