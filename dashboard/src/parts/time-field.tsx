// Time field: local time for the user, UTC for the server and the address.

import { useDraft } from './draft.js';

type TimeFieldProps = {
  name: string;
  /** ISO 8601, or empty. */
  value: string;
  change: (value: string) => void;
};

export function TimeField({ name, value, change, ...rest }: TimeFieldProps) {
  const draft = useDraft(localOf(value), (local) =>
    change(local === '' ? '' : new Date(local).toISOString()),
  );
  return <input {...rest} {...draft} name={name} type="datetime-local" step={1} />;
}

function localOf(value: string): string {
  const date = new Date(value);
  if (value === '' || Number.isNaN(date.getTime())) return '';
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
