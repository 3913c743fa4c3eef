// Names with places in them: `orders.{topic}`, `{tenantId}-events`. What may stand in the braces is checked when
// the destination is made; a message that lacks the field is refused when it is sent, never sent elsewhere.

import type { ClaimedMessage } from '../model/claimed-message.js';
import { refuse } from '../model/options.js';
import { retry } from '../model/outcome.js';
import type { Outcome } from '../model/outcome.js';

const fields = [
  'topic',
  'namespace',
  'tenantId',
  'key',
  'aggregateType',
  'aggregateId',
  'id',
] as const;
type Field = (typeof fields)[number];

/** Gives the name for a message, or null if it lacks one of the fields. */
export type Template = ((message: ClaimedMessage) => string | null) & {
  /** Whether there are fields in it, so that names differ from message to message. */
  readonly varies: boolean;
};

const forbidden = new Set(['not_authorized', 'access_refused']);

/** Where names differ, one that is forbidden says nothing of the others: it must not stop them. */
export function unlessOthersMay(outcome: Outcome, { varies }: { varies: boolean }): Outcome {
  if (!varies || outcome.kind !== 'pause' || !forbidden.has(outcome.code)) return outcome;
  const { kind: _kind, ...failure } = outcome;
  return retry(failure);
}

/** A kind of option. */
export function template(fallback?: string) {
  return (name: string, value: unknown): Template => {
    const text = value === undefined ? fallback : value;
    if (typeof text !== 'string' || text === '') {
      return refuse(
        name,
        value,
        'give text, with fields of the message in braces, such as {topic}',
      );
    }
    const parts = text.split(/\{([^{}]*)\}/);
    for (let index = 1; index < parts.length; index += 2) {
      if (!(fields as readonly string[]).includes(parts[index] ?? ''))
        refuse(name, text, `in braces use ${fields.join(', ')}`);
    }
    if (parts.some((part, index) => index % 2 === 0 && /[{}]/.test(part)))
      refuse(name, text, 'close every brace, and put nothing but a field between');
    if (parts.length === 1) return Object.assign(() => text, { varies: false });
    const fill = (message: ClaimedMessage): string | null => {
      let result = '';
      for (const [index, part] of parts.entries()) {
        const filled = index % 2 === 0 ? part : message[part as Field];
        if (filled === null) return null;
        result += filled;
      }
      return result;
    };
    return Object.assign(fill, { varies: true });
  };
}
