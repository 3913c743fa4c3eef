// Time field: the zone of the page for the user, UTC for the server and the address.

import { fromIsoTime, isoTime, zoneName } from '../zone.js';
import { useDraft } from './draft.js';

type TimeFieldProps = {
  name: string;
  /** ISO 8601, or empty. */
  value: string;
  change: (value: string) => void;
  clears?: number;
};

export function TimeField({ name, value, change, clears, ...rest }: TimeFieldProps) {
  const draft = useDraft(
    shownOf(value),
    (shown) => change(shown === '' ? '' : fromIsoTime(shown).toISOString()),
    clears,
  );
  return (
    <input
      {...rest}
      {...draft}
      name={name}
      type="datetime-local"
      step={1}
      title={`Time zone: ${zoneName()}`}
    />
  );
}

function shownOf(value: string): string {
  const date = new Date(value);
  if (value === '' || Number.isNaN(date.getTime())) return '';
  return isoTime(date).slice(0, 19);
}
