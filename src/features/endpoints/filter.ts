// Filters of endpoints: which payloads an endpoint wants. A filter is an object of fields and conditions, without code.
// It is checked here and again in the database (filter_problem); enqueue evaluates it.

import { ConfigurationError, shown } from '../../core/errors.js';
import { refuse } from '../../core/options.js';

type Scalar = string | number | boolean | null;

/** Conditions on one field. All of them must hold. */
export type FilterCondition = {
  /** One of these values. */
  in?: readonly Scalar[];
  /** Whether the field is there, with any value. */
  exists?: boolean;
  /** A text that begins like this. */
  prefix?: string;
  gt?: number | string;
  gte?: number | string;
  lt?: number | string;
  lte?: number | string;
};

/** Fields of the payload, as names joined by dots, each with the value that it must have, or with conditions. */
export type PayloadFilter = Readonly<Record<string, Scalar | FilterCondition>>;

const operators = 'in, exists, prefix, gt, gte, lt, lte';
const mostFields = 20;
const mostBytes = 4096;
const mostValues = 100;
const fieldName = /^[^.]+(\.[^.]+){0,9}$/;

const operands: Record<string, { isSound: (value: unknown) => boolean; allowed: string }> = {
  in: {
    isSound: (value) =>
      Array.isArray(value) &&
      value.length >= 1 &&
      value.length <= mostValues &&
      value.every((each) => isScalar(each)),
    allowed: `give a list of 1 to ${mostValues} texts, numbers, true, false or null`,
  },
  exists: { isSound: (value) => typeof value === 'boolean', allowed: 'give true or false' },
  prefix: {
    isSound: (value) => typeof value === 'string' && value !== '',
    allowed: 'give a text',
  },
  ...Object.fromEntries(
    ['gt', 'gte', 'lt', 'lte'].map((operator) => [
      operator,
      {
        isSound: (value: unknown) => typeof value === 'string' || Number.isFinite(value),
        allowed: 'give a number or a text',
      },
    ]),
  ),
};

/** Option kind: a filter. */
export function payloadFilter(name: string, value: unknown): PayloadFilter {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || isEmpty(value))
    refuse(name, value, 'give an object such as {"type": "invoice", "amount": {"gte": 100}}');
  const bytes = Buffer.byteLength(JSON.stringify(value));
  if (bytes > mostBytes)
    throw new ConfigurationError(`${name} has ${bytes} bytes: give at most ${mostBytes}`);
  const fields = Object.entries(value);
  if (fields.length > mostFields)
    throw new ConfigurationError(`${name} has ${fields.length} fields: give at most ${mostFields}`);
  for (const [field, wanted] of fields) checkField(name, field, wanted);
  return value as PayloadFilter;
}

function checkField(name: string, field: string, wanted: unknown): void {
  if (!fieldName.test(field) || Buffer.byteLength(field) > 255)
    throw new ConfigurationError(
      `${name} has the field ${shown(field)}: give 1 to 10 names joined by dots, at most 255 bytes`,
    );
  if (isScalar(wanted)) return;
  if (typeof wanted !== 'object' || wanted === null || Array.isArray(wanted) || isEmpty(wanted))
    refuse(
      `${name}.${field}`,
      wanted,
      `give a text, a number, true, false, null, or an object of ${operators}`,
    );
  for (const [operator, operand] of Object.entries(wanted)) {
    const rule = Object.hasOwn(operands, operator) ? operands[operator] : undefined;
    if (rule === undefined)
      throw new ConfigurationError(
        `${name}.${field}.${operator} is not an operator: use ${operators}`,
      );
    if (!rule.isSound(operand)) refuse(`${name}.${field}.${operator}`, operand, rule.allowed);
  }
}

function isScalar(value: unknown): value is Scalar {
  return (
    value === null ||
    typeof value === 'string' ||
    typeof value === 'boolean' ||
    Number.isFinite(value)
  );
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}
