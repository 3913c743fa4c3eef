// Claimed messages that are not sent: the message is missing, or is too large to read and came without its payload, or it
// has expired. Expired ones end as discarded, and the others go to the dead letters, all without a call.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { reject, release } from '../../core/outcome.js';
import type { Conclusion, Outcome } from '../../core/outcome.js';
import type { Settler } from './settler.js';

const expired: Conclusion = {
  kind: 'discard',
  code: 'expired',
  message: 'it is older than the endpoint allows',
};

/** The outcome of a message that cannot be sent; undefined for all others. */
export function unreadable(message: ClaimedMessage): Outcome | undefined {
  if (!message.exists) return reject({ code: 'message_missing' });
  if (message.readable) return undefined;
  return reject({
    code: 'too_large_to_read',
    message: 'payload and headers are too large to read',
  });
}

/**
 * Settles messages that are not sent; returns the rest. In a lane only the first message may be settled: messages
 * after one that is still to be sent, or after a dead one, are released.
 */
export function endUnreadable(
  settler: Settler,
  leaseId: string,
  messages: readonly ClaimedMessage[],
): readonly ClaimedMessage[] {
  if (messages.every((message) => message.readable && !message.expired)) return messages;
  const begun = new Set<string>();
  const closed = new Set<string>();
  return messages.filter((message) => {
    const { keyId } = message;
    const ending = message.expired ? expired : unreadable(message);
    if (keyId === null) {
      if (ending !== undefined) settler.end(leaseId, message, ending, null);
      return ending === undefined;
    }
    if (ending === undefined && !closed.has(keyId)) {
      begun.add(keyId);
      return true;
    }
    const isHead = !closed.has(keyId) && !begun.has(keyId);
    settler.end(leaseId, message, isHead && ending !== undefined ? ending : release(), null);
    closed.add(keyId);
    return false;
  });
}
