// Payment guard: checks that a message has an exact amount above zero, an existing currency, and a destination in the
// format of its payment rail. Amounts never become doubles. Its messages show no values: account numbers and amounts
// must not appear in errors.

import { currencies } from './currencies.js';
import { holdsCardNumber, isCardToken, isIban, isMobileNumber } from './account-formats.js';
import type { GuardFunction, Refusal } from '../../core/guard.js';
import { literalsAt } from './json-literal.js';
import { checkOptions, choice, list, optional, refuse, text } from '../../core/options.js';

export type DestinationFormat =
  | 'iban'
  | 'card_token'
  | 'mobile'
  | RegExp
  | ((destination: string) => boolean);

export type Rail = {
  /** The format of its destinations. */
  destination: DestinationFormat;
  /** The allowed currencies. Default: every currency. */
  currencies?: readonly string[];
};

export type PaymentGuardOptions = {
  /** The payment rails by name, with the format of their destinations. */
  rails: Record<string, Rail>;
  /** `decimal`: an amount is text or a number such as 12.34; `minor`: a whole number of cents. Default `decimal`. */
  amounts?: 'decimal' | 'minor';
  /** Where in the payload the four fields are. Default: `amount`, `currency`, `rail` and `destination`. */
  fields?: { amount?: string; currency?: string; rail?: string; destination?: string };
};

/** As in ISO 20022: no amount has more digits. */
const maxDigits = 18;

/** Longer than any token. In a longer destination no card number is looked for: it is refused anyway. */
const longestSearched = 1000;

type CheckedRail = {
  isDestination: (destination: string) => boolean;
  noCardNumbers: boolean;
  currencies: ReadonlySet<string> | undefined;
};

export function paymentGuard(options: PaymentGuardOptions): GuardFunction {
  const { rails, amounts, fields } = checkOptions('paymentGuard', options, {
    rails: checkRails,
    amounts: choice('decimal', 'minor'),
    fields: checkFields,
  });
  const paths = [fields.rail, fields.currency, fields.amount, fields.destination];
  return ({ payloadText }) => {
    // in one pass: a payload may have a mebibyte, and the relay must not stop for it
    const [railLiteral, currencyLiteral, amount, destination] = literalsAt(payloadText, paths);
    const found = textOf(railLiteral);
    const rail = found === undefined ? undefined : rails.get(found);
    if (rail === undefined) return refusal('rail_unknown', 'the rail is none of those configured');
    const currency = textOf(currencyLiteral);
    const digits = currency === undefined ? undefined : currencies.get(currency);
    if (currency === undefined || digits === undefined)
      return refusal('currency_unknown', 'the currency is no code of ISO 4217');
    if (rail.currencies?.has(currency) === false)
      return refusal('currency_not_allowed', 'the rail does not carry this currency');
    return amountRefusal(amount, amounts, digits) ?? destinationRefusal(textOf(destination), rail);
  };
}

/** Why the amount, given as JSON, is refused; undefined if it is valid. */
function amountRefusal(
  literal: string | undefined,
  amounts: 'decimal' | 'minor',
  digits: number,
): Refusal | undefined {
  const amount = literal?.startsWith('"') ? (JSON.parse(literal) as string) : literal;
  const parts = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?$/.exec(amount ?? '');
  if (parts === null)
    return refusal('amount_invalid', 'the amount is no decimal number: give digits and a point');
  const [, sign, whole = '', fraction = ''] = parts;
  if (whole.length + fraction.length > maxDigits)
    return refusal('amount_invalid', `the amount has more than ${maxDigits} digits`);
  if (sign === '-' || /^0*$/.test(whole + fraction))
    return refusal('amount_not_positive', 'the amount is not above zero');
  const allowed = amounts === 'minor' ? 0 : digits;
  if (fraction.length > allowed)
    return refusal(
      'amount_too_precise',
      `the amount has ${fraction.length} digits behind the point, and ${allowed} are allowed`,
    );
  return undefined;
}

function destinationRefusal(
  destination: string | undefined,
  { isDestination, noCardNumbers }: CheckedRail,
): Refusal | undefined {
  if (destination === undefined)
    return refusal('destination_invalid', 'the destination is missing, or no text');
  if (noCardNumbers && destination.length <= longestSearched && holdsCardNumber(destination))
    return refusal('card_number_refused', 'the destination is a card number: send a token');
  return isDestination(destination)
    ? undefined
    : refusal('destination_invalid', 'the destination does not have the format of its rail');
}

function refusal(code: string, message: string): Refusal {
  return { code, message };
}

function textOf(literal: string | undefined): string | undefined {
  return literal?.startsWith('"') ? (JSON.parse(literal) as string) : undefined;
}

const formats: Record<string, (destination: string) => boolean> = {
  iban: isIban,
  card_token: isCardToken,
  mobile: isMobileNumber,
};

function checkRails(name: string, value: unknown): ReadonlyMap<string, CheckedRail> {
  if (typeof value !== 'object' || value === null || Object.keys(value).length === 0)
    refuse(name, value, "give rails by name, such as { sepa: { destination: 'iban' } }");
  return new Map(
    Object.entries(value).map(([rail, rules]): [string, CheckedRail] => {
      const checked = checkOptions(`${name}.${rail}`, rules as Rail, {
        destination: checkFormat,
        currencies: optional(list(checkCurrency, { min: 1, max: 300 })),
      });
      return [
        rail,
        {
          isDestination: checked.destination,
          noCardNumbers: (rules as Rail).destination === 'card_token',
          currencies: checked.currencies && new Set(checked.currencies),
        },
      ];
    }),
  );
}

function checkFormat(name: string, value: unknown): (destination: string) => boolean {
  const known = typeof value === 'string' && Object.hasOwn(formats, value) && formats[value];
  if (known) return known;
  if (typeof value === 'function') {
    const isDestination = value as (destination: string) => unknown;
    // only true means valid
    return (destination) => isDestination(destination) === true;
  }
  if (value instanceof RegExp) {
    // must match the whole text: g and y would remember the last position, m would match a single line
    const pattern = new RegExp(`^(?:${value.source})$`, value.flags.replaceAll(/[gmy]/g, ''));
    return (destination) => pattern.test(destination);
  }
  const names = Object.keys(formats).map((format) => `'${format}'`);
  return refuse(name, value, `give ${names.join(', ')}, a regular expression or a function`);
}

function checkCurrency(name: string, value: unknown): string {
  return typeof value === 'string' && currencies.has(value)
    ? value
    : refuse(name, value, 'give a code of ISO 4217, such as EUR');
}

function checkFields(name: string, value: unknown) {
  const path = text({
    pattern: /^[^.]+(\.[^.]+)*$/,
    meaning: 'the names that lead to it, such as payment.amount',
  });
  const checked = checkOptions(name, value as object, {
    amount: (field: string, given: unknown) => path(field, given ?? 'amount').split('.'),
    currency: (field: string, given: unknown) => path(field, given ?? 'currency').split('.'),
    rail: (field: string, given: unknown) => path(field, given ?? 'rail').split('.'),
    destination: (field: string, given: unknown) => path(field, given ?? 'destination').split('.'),
  });
  return checked;
}
