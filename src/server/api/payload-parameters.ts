// Parameters that filter messages by fields of their payloads: `payload.orderId=4711`. Only the fields that the
// configuration declares can be searched, and only by routes whose clients may read payloads too.

import type { ServerOptions } from '../options.js';
import { text } from '../route.js';
import type { Parameter, Place, Route } from '../route.js';

/** The part of the configuration that declares the fields. */
export type Configured = { server?: ServerOptions | null | undefined };

const prefix = 'payload.';

export function searchableFields({ server }: Configured): readonly string[] {
  return server?.searchablePayloadFields ?? [];
}

/** A parameter for each declared field, and what to say about others. */
export function payloadParameters(
  configured: Configured,
  place: Pick<Place, 'in'> = {},
): { parameters: Record<string, Parameter>; remedyFor: NonNullable<Route['remedyFor']> } {
  const fields = searchableFields(configured);
  const names = fields.map((field) => `${prefix}${field}`);
  return {
    parameters: Object.fromEntries(
      fields.map((field) => [
        `${prefix}${field}`,
        text({
          ...place,
          description: `with this value of \`${field}\` in the payload: a text, a number, \`true\`, \`false\` or \`null\``,
        }),
      ]),
    ),
    remedyFor(name) {
      if (!name.startsWith(prefix)) return undefined;
      return names.length === 0
        ? 'add the field to server.searchablePayloadFields of the configuration'
        : `use ${names.join(', ')}, or add the field to server.searchablePayloadFields of the configuration`;
    },
  };
}

/** The values of a request with those of fields in one filter. */
export function withPayloadFilter(
  values: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const isField = ([name]: [string, unknown]): boolean => name.startsWith(prefix);
  const entries = Object.entries(values);
  const fields = entries
    .filter(isField)
    .map(([name, value]) => [name.slice(prefix.length), value] as const);
  return {
    ...Object.fromEntries(entries.filter((entry) => !isField(entry))),
    ...(fields.length > 0 && { payload: Object.fromEntries(fields) }),
  };
}
