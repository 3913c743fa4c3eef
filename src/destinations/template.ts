// Templates for names: `orders.{topic}`, `{tenantId}-events`. The fields in braces are checked when the destination is
// made. A message that lacks a field is rejected when it is sent, never sent elsewhere.

import type { ClaimedMessage } from '../core/claimed-message.js';
import { refuse } from '../core/options.js';
import { retry } from '../core/outcome.js';
import type { Outcome } from '../core/outcome.js';

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

/** Returns the name for a message, or null if it lacks one of the fields. */
export type Template = ((message: ClaimedMessage) => string | null) & {
  /** Whether it has fields, so that names differ between messages. */
  readonly varies: boolean;
  /** The template as it was given, or the default. */
  readonly text: string;
};

const forbidden = new Set(['not_authorized', 'access_refused']);

/**
 * If names differ, a forbidden name concerns only its own messages, and must not pause the destination for the others.
 */
export function unlessOthersMay(outcome: Outcome, { varies }: { varies: boolean }): Outcome {
  if (!varies || outcome.kind !== 'pause' || !forbidden.has(outcome.code)) return outcome;
  const { kind: _kind, ...failure } = outcome;
  return retry(failure);
}

/** Option kind: a template. */
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
    if (parts.length === 1) return Object.assign(() => text, { varies: false, text });
    const fill = (message: ClaimedMessage): string | null => {
      let result = '';
      for (const [index, part] of parts.entries()) {
        const filled = index % 2 === 0 ? part : message[part as Field];
        if (filled === null) return null;
        result += filled;
      }
      return result;
    };
    return Object.assign(fill, { varies: true, text });
  };
}
