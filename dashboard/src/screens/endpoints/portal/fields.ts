// The fields of an endpoint that customers can set, in the order of the form. A new field of the API needs one entry
// here: the form, its check and what is sent are made from this list.

import type { Endpoint } from '../answers.js';

export type Field = {
  /** Its name in the API. */
  name: string;
  label: string;
  hint: string;
  kind: 'url' | 'text' | 'events' | 'choice' | 'lines';
  required?: boolean;
  placeholder?: string;
  /** Shown under "More settings". */
  advanced?: boolean;
  /** For a choice: the values of the API with their words. */
  choices?: readonly (readonly [value: string, word: string])[];
  /** The value in the form, of an endpoint or of a new one. */
  from: (endpoint: Partial<Endpoint>) => FieldValue;
  /** The value for the API; undefined: leave it as it is. */
  sent: (value: FieldValue) => unknown;
};

/** Topics are a list, everything else is text. */
export type FieldValue = string | readonly string[];

const orNull = (value: FieldValue): unknown => (value === '' ? null : value);

export const fields: readonly Field[] = [
  {
    name: 'url',
    label: 'Address',
    hint: 'An https:// address of your receiver. It answers with a status from 200 to 299 when it has taken an event.',
    kind: 'url',
    required: true,
    placeholder: 'https://example.com/webhooks',
    from: ({ url }) => url ?? '',
    sent: (value) => value,
  },
  {
    name: 'description',
    label: 'Description',
    hint: 'A note for yourself.',
    kind: 'text',
    from: ({ description }) => description ?? '',
    sent: orNull,
  },
  {
    name: 'topics',
    label: 'Events',
    hint: 'Which events this endpoint receives.',
    kind: 'events',
    required: true,
    from: ({ topics }) => topics ?? ['*'],
    sent: (value) => value,
  },
  {
    name: 'body',
    label: 'Format',
    hint: 'What the body of a request looks like.',
    kind: 'choice',
    advanced: true,
    choices: [
      ['', 'As usual here'],
      ['payload', 'The data of the event alone'],
      ['envelope', 'An envelope with event, data and timestamp'],
      ['cloudevents', 'CloudEvents, binary'],
      ['cloudevents-structured', 'CloudEvents, structured'],
    ],
    from: ({ body }) => body ?? '',
    sent: orNull,
  },
  {
    name: 'headers',
    label: 'Headers',
    hint: 'Added to every request, one on each line. They are stored encrypted and never shown again; what you write replaces all earlier ones.',
    kind: 'lines',
    advanced: true,
    placeholder: 'authorization: Bearer …',
    from: () => '',
    sent: (value) => headersIn(String(value)),
  },
];

function headersIn(text: string): Record<string, string> | undefined {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  if (lines.length === 0) return undefined;
  return Object.fromEntries(
    lines.map((line) => {
      const [name = '', ...value] = line.split(':');
      return [name.trim(), value.join(':').trim()];
    }),
  );
}

/** The fields of a request: all that were changed. A new endpoint has no field that is null. */
export function changesOf(
  before: Readonly<Record<string, FieldValue>>,
  values: Readonly<Record<string, FieldValue>>,
  isNew: boolean,
): Record<string, unknown> {
  return Object.fromEntries(
    fields
      .filter(({ name }) => isNew || String(values[name]) !== String(before[name]))
      .map(({ name, sent }) => [name, sent(values[name] ?? '')] as const)
      .filter(([, value]) => value !== undefined && !(isNew && value === null)),
  );
}
