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

export function claimedMessage(
  fields: Partial<Record<keyof typeof column, string | null>>,
): ClaimedMessage {
  const values: Partial<Record<keyof typeof column, string | null>> = { ...defaults, ...fields };
  const names = Object.keys(column) as (keyof typeof column)[];
  return new ClaimedMessage(names.map((name) => values[name] ?? null));
}
