// Tools of dead letters for `waybill mcp`: they list and count them, and retry or discard one message.

import { filters, given, oneMessage, tool } from '../../cli/mcp-arguments.js';
import type { Tool, ToolContext } from '../../cli/mcp-arguments.js';
import { cancelDeliveries, retryDeliveriesNow } from '../../listing/deliveries.js';
import { changeDeadLetter, groupDeadLetters, listDeadLetters } from './database.js';

export function deadLetterTools({ inDatabase, actor }: ToolContext): readonly Tool[] {
  return [
    tool(
      {
        name: 'list_dead_letters',
        description: 'Deliveries that failed for good, oldest first, with their error.',
      },
      filters,
      ({ limit, ...filter }) =>
        inDatabase((database) => listDeadLetters(database, given(filter), limit)),
    ),
    tool(
      {
        name: 'count_dead_letters',
        description:
          'The number of dead letters by cause (error code and code of the other side), with the destination that has most of them.',
      },
      {},
      () => inDatabase((database) => groupDeadLetters(database)),
    ),
    tool(
      {
        name: 'retry_message',
        description:
          'Retries a message now: its dead letters are retried, its pending deliveries become due.',
        changes: true,
      },
      oneMessage,
      ({ id: messageId, destination }) =>
        inDatabase(async (database) => ({
          retried: await changeDeadLetter(database, 'retry', { messageId, destination }, actor),
          madeDue: await retryDeliveriesNow(database, messageId, destination, actor),
        })),
    ),
    tool(
      {
        name: 'discard_message',
        description:
          'Discards a message: pending deliveries are cancelled, dead letters discarded. Discarded dead letters can be restored with `waybill dead-letters restore`; a cancelled delivery cannot.',
        changes: true,
      },
      oneMessage,
      ({ id: messageId, destination }) =>
        inDatabase(async (database) => ({
          discarded: await changeDeadLetter(database, 'discard', { messageId, destination }, actor),
          cancelled: await cancelDeliveries(database, messageId, destination, actor),
        })),
    ),
  ];
}
