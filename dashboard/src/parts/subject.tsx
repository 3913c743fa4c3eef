// Shows the subject of an operator's action: the filter or the object, as the database recorded it.

import { Time } from './time.js';

/** These come first, because jsonb does not keep the order of names. */
const leading = ['replay', 'rollout', 'destination', 'topic', 'errorCode'];
const timePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;

export function Subject({ subject }: { subject: Record<string, unknown> }) {
  const given = Object.entries(subject)
    .filter(([, value]) => value !== null)
    .toSorted(([a], [b]) => rankOf(a) - rankOf(b));
  if (given.length === 0) return <span class="muted">everything</span>;
  return (
    <span class="subject">
      {given.map(([name, value]) => (
        <span key={name}>
          <span class="muted">{name.replaceAll('_', ' ')}</span> <Value value={value} />
        </span>
      ))}
    </span>
  );
}

function Value({ value }: { value: unknown }) {
  if (typeof value === 'string' && timePattern.test(value)) return <Time at={value} />;
  return <code>{wordsOf(value)}</code>;
}

/** JSON without punctuation: `topic user.* to crm, topic payment.* to billing`. */
function wordsOf(value: unknown): string {
  if (Array.isArray(value)) return value.map(wordsOf).join(', ');
  if (typeof value !== 'object' || value === null) return String(value);
  return Object.entries(value)
    .toSorted(([a], [b]) => rankOf(a) - rankOf(b))
    .map(([name, part]) => `${name} ${wordsOf(part)}`)
    .join(' ');
}

function rankOf(name: string): number {
  const rank = leading.indexOf(name);
  return rank === -1 ? leading.length : rank;
}
