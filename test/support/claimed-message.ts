// Builds a claimed message by hand.

import { ClaimedMessage, column } from '../../src/core/claimed-message.js';

const defaults = {
  claimNo: '1',
  tries: '1',
  quarantined: 'f',
  namespace: 'default',
  topic: 'topic',
  payload: '{}',
};

type Fields = Partial<Record<keyof typeof column, string | null>>;

export function claimedMessage(fields: Fields): ClaimedMessage {
  return new ClaimedMessage(claimedRow(fields));
}

/** The message as the database returns it. */
export function claimedRow(fields: Fields): (string | null)[] {
  const values: Fields = { ...defaults, ...fields };
  const names = Object.keys(column) as (keyof typeof column)[];
  return names.map((name) => values[name] ?? null);
}
