// Names with places in them: `orders.{topic}`, `{tenantId}-events`. What may stand in the braces is checked when
// the destination is made; a message that lacks the field is refused when it is sent, never sent elsewhere.

import type { ClaimedMessage } from '../model/claimed-message.js';
import { refuse } from '../model/options.js';

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
export type Template = (message: ClaimedMessage) => string | null;

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
    if (parts.length === 1) return () => text;
    return (message) => {
      let result = '';
      for (const [index, part] of parts.entries()) {
        const filled = index % 2 === 0 ? part : message[part as Field];
        if (filled === null) return null;
        result += filled;
      }
      return result;
    };
  };
}
