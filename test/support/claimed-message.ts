// A message as it comes from a claim, made by hand.

import { ClaimedMessage, column } from '../../src/model/claimed-message.js';

const defaults = {
  claimNo: '1',
  tries: '1',
  alone: 'f',
  namespace: 'default',
  topic: 'topic',
  payload: '{}',
};

type Fields = Partial<Record<keyof typeof column, string | null>>;

export function claimedMessage(fields: Fields): ClaimedMessage {
  return new ClaimedMessage(claimedRow(fields));
}

/** As it comes from the database. */
export function claimedRow(fields: Fields): (string | null)[] {
  const values: Fields = { ...defaults, ...fields };
  const names = Object.keys(column) as (keyof typeof column)[];
  return names.map((name) => values[name] ?? null);
}
