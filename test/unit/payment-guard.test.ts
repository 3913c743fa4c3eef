// The payment guard: what a payment rail may be sent. Every rule is tested by examples and by properties; no amount is
// ever a double.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { paymentGuard } from '../../src/destinations/payment-guard/payment-guard.js';
import type { PaymentGuardOptions } from '../../src/destinations/payment-guard/payment-guard.js';
import { isIban } from '../../src/destinations/payment-guard/account-formats.js';
import { currencies } from '../../src/destinations/payment-guard/currencies.js';
import { claimedMessage } from '../support/claimed-message.js';

const rails: PaymentGuardOptions['rails'] = {
  sepa: { destination: 'iban', currencies: ['EUR'] },
  bank: { destination: 'iban' },
  card: { destination: 'card_token' },
  mobile_money: { destination: 'mobile' },
  ledger: { destination: /^acc-\d{4}$/g },
  odd: { destination: (text) => text === 'yes' },
};

const iban = 'DE89370400440532013000';

/** The code of the refusal, or undefined. The payload is JSON text, so that numbers keep their notation. */
function judge(payload: string, options: Partial<PaymentGuardOptions> = {}): string | undefined {
  const guard = paymentGuard({ rails, ...options });
  const answer = guard(claimedMessage({ payload }));
  expect(answer).not.toBeInstanceOf(Promise);
  return (answer as { code: string } | undefined)?.code;
}

const payment = (
  amount: string,
  { currency = 'EUR', rail = 'bank', destination = iban } = {},
): string =>
  `{"amount": ${amount}, "currency": ${JSON.stringify(currency)}, "rail": ${JSON.stringify(rail)}, "destination": ${JSON.stringify(destination)}}`;

describe('the amount', () => {
  it.each([
    ['12.34', undefined],
    ['"12.34"', undefined],
    ['0.01', undefined],
    ['1', undefined],
    ['999999999999999999', undefined],
    ['9007199254740993', undefined],
    ['0', 'amount_not_positive'],
    ['0.00', 'amount_not_positive'],
    ['-0', 'amount_not_positive'],
    ['-1', 'amount_not_positive'],
    ['"-12.34"', 'amount_not_positive'],
    ['0.001', 'amount_too_precise'],
    ['12.340', 'amount_too_precise'],
    // a double would be 0.1
    ['0.1000000000000000055', 'amount_invalid'],
    ['1000000000000000000', 'amount_invalid'],
    [`1${'0'.repeat(400)}`, 'amount_invalid'],
    ['1e400', 'amount_invalid'],
    ['1e1', 'amount_invalid'],
    ['"1e1"', 'amount_invalid'],
    ['"NaN"', 'amount_invalid'],
    ['"Infinity"', 'amount_invalid'],
    ['"0x10"', 'amount_invalid'],
    ['" 1"', 'amount_invalid'],
    ['"1\\n"', 'amount_invalid'],
    ['"01"', 'amount_invalid'],
    ['".5"', 'amount_invalid'],
    ['"5."', 'amount_invalid'],
    ['"+5"', 'amount_invalid'],
    ['"1,000.00"', 'amount_invalid'],
    ['"١٢"', 'amount_invalid'],
    ['""', 'amount_invalid'],
    ['null', 'amount_invalid'],
    ['true', 'amount_invalid'],
    ['[12.34]', 'amount_invalid'],
    ['{"value": 12.34}', 'amount_invalid'],
  ])('P8 %s is judged %s', (amount, code) => {
    expect(judge(payment(amount))).toBe(code);
  });

  it('P8 is what the text says, digit by digit, never the value of a double', () => {
    const amount = fc.tuple(
      fc.bigInt({ min: 0n, max: 10n ** 15n }),
      fc.integer({ min: 0, max: 99 }),
      fc.boolean(),
    );
    fc.assert(
      fc.property(amount, ([whole, cents, asText]) => {
        const written = `${whole}.${String(cents).padStart(2, '0')}`;
        const positive = whole > 0n || cents > 0;
        const expected = positive ? undefined : 'amount_not_positive';
        expect(judge(payment(asText ? `"${written}"` : written))).toBe(expected);
      }),
    );
  });

  it('P8 has at most as many decimal places as its currency', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...currencies),
        fc.integer({ min: 0, max: 6 }),
        ([currency, allowed], given) => {
          const written = given === 0 ? '7' : `7.${'1'.repeat(given)}`;
          const code = judge(payment(written, { currency }));
          expect(code).toBe(given <= allowed ? undefined : 'amount_too_precise');
        },
      ),
    );
  });

  it('P8 in minor units is a whole number, whatever the currency', () => {
    const minor = { amounts: 'minor' as const };
    expect(judge(payment('1234'), minor)).toBeUndefined();
    expect(judge(payment('"1234"'), minor)).toBeUndefined();
    expect(judge(payment('12.34'), minor)).toBe('amount_too_precise');
    expect(judge(payment('0'), minor)).toBe('amount_not_positive');
  });

  it('P8 no payload makes the guard throw', () => {
    const guard = paymentGuard({ rails });
    const payloads = fc.oneof(
      fc.json(),
      fc.record({
        amount: fc.jsonValue(),
        currency: fc.oneof(fc.constant('EUR'), fc.jsonValue()),
        rail: fc.oneof(fc.constantFrom(...Object.keys(rails), '__proto__'), fc.jsonValue()),
        destination: fc.jsonValue(),
      }),
    );
    fc.assert(
      fc.property(payloads, (value) => {
        const payload = typeof value === 'string' ? value : JSON.stringify(value);
        const answer = guard(claimedMessage({ payload })) as { code: string } | undefined;
        expect(answer === undefined || answer.code.length > 0).toBe(true);
      }),
    );
  });
});

describe('the currency', () => {
  it.each(['XXX', 'XTS', 'XAU', 'eur', 'EU', 'EURO', 'HRK', 'DEM', '', 'toString', 'EUR '])(
    'P8 %j is not a currency',
    (currency) => {
      expect(judge(payment('1', { currency }))).toBe('currency_unknown');
    },
  );

  it('P8 must be one that the rail supports', () => {
    expect(judge(payment('1', { rail: 'sepa' }))).toBeUndefined();
    expect(judge(payment('1', { rail: 'sepa', currency: 'USD' }))).toBe('currency_not_allowed');
  });

  it('has the decimal places that the platform knows, if it knows the currency', () => {
    // where CLDR describes how prices are written instead of ISO 4217
    const apart = new Set(
      'AFN ALL COP HUF IDR IQD IRR KPW LAK LBP MGA MMK PKR SOS SYP YER'.split(' '),
    );
    for (const [currency, digits] of currencies) {
      if (apart.has(currency)) continue;
      const format = new Intl.NumberFormat('en', { style: 'currency', currency });
      expect([currency, digits]).toEqual([
        currency,
        format.resolvedOptions().maximumFractionDigits,
      ]);
    }
    expect(currencies.size).toBeGreaterThan(160);
  });
});

describe('the rail', () => {
  it.each(['swift', '', 'constructor', '__proto__', 'SEPA'])('P8 %j is unknown', (rail) => {
    expect(judge(payment('1', { rail }))).toBe('rail_unknown');
  });

  it.each(['{}', '[]', 'null', '"sepa"', '17'])('P8 a payload %s has no rail', (payload) => {
    expect(judge(payload)).toBe('rail_unknown');
  });
});

/** A valid IBAN of a German account, with check digits computed independently with big integers. */
const germanIban = fc.stringMatching(/^\d{18}$/).map((account) => {
  const check = 98n - (BigInt(`${account}131400`) % 97n);
  return `DE${String(check).padStart(2, '0')}${account}`;
});

describe('an IBAN', () => {
  it.each([
    'DE89370400440532013000',
    'GB82WEST12345698765432',
    'FR1420041010050500013M02606',
    'NL91ABNA0417164300',
    'NO9386011117947',
    'MT84MALT011000012345MTLCAST001S',
    'SA0380000000608010167519',
    'BR1800360305000010009795493C1',
  ])('P8 %s is one', (destination) => {
    expect(judge(payment('1', { destination }))).toBeUndefined();
  });

  it.each([
    'DE89370400440532013001',
    'DE8937040044053201300',
    'DE893704004405320130000',
    'DE89 3704 0044 0532 0130 00',
    'de89370400440532013000',
    'ZZ89370400440532013000',
    'DE00370400440532013000',
    '',
    'DE',
  ])('P8 %j is not an IBAN', (destination) => {
    expect(judge(payment('1', { destination }))).toBe('destination_invalid');
  });

  it('P8 with right check digits is accepted, and with one digit changed or two swapped is not', () => {
    fc.assert(
      fc.property(
        germanIban,
        fc.integer({ min: 5, max: 21 }),
        fc.integer({ min: 1, max: 9 }),
        (good, place, shift) => {
          expect(isIban(good)).toBe(true);
          const digit = (Number(good[place]) + shift) % 10;
          expect(isIban(good.slice(0, place) + digit + good.slice(place + 1))).toBe(false);
          const [a = '', b = ''] = good.slice(place - 1, place + 1);
          fc.pre(a !== b);
          expect(isIban(good.slice(0, place - 1) + b + a + good.slice(place + 1))).toBe(false);
        },
      ),
    );
  });
});

it('P8 an IBAN has the length of its country, whatever its check digits', () => {
  fc.assert(
    fc.property(fc.stringMatching(/^\d{14,22}$/), (account) => {
      const check = 98n - (BigInt(`${account}131400`) % 97n);
      const text = `DE${String(check).padStart(2, '0')}${account}`;
      expect(isIban(text)).toBe(account.length === 18);
    }),
  );
});

describe('a card token', () => {
  const judged = (destination: string) => judge(payment('1', { rail: 'card', destination }));

  it.each(['tok_1NvQ9n2eZvKYlo2C', 'tok_abcd', 'tok_a-b_c-0123'])('P8 %s is a token', (token) => {
    expect(judged(token)).toBeUndefined();
  });

  it.each([
    '4111111111111111',
    '4111 1111 1111 1111',
    '5500-0000-0000-0004',
    '378282246310005',
    'tok_4111111111111111',
    'card 4111111111111111',
    'tok_4242_4242_4242_4242',
    'tok_99999999994242424242424242',
  ])('P8 %s is a card number, and is refused as one', (destination) => {
    expect(judged(destination)).toBe('card_number_refused');
  });

  it.each(['', 'tok_', 'tok_a b', '4111111111111112', 'pm_1NvQ9n2eZvKYlo2C'])(
    'P8 %j is not a token',
    (destination) => {
      expect(judged(destination)).toBe('destination_invalid');
    },
  );

  it('P8 every card number is refused, and never shown', () => {
    const card = fc.stringMatching(/^[3-6]\d{11,17}$/).map((body) => {
      const sum = Array.from(body)
        .toReversed()
        .reduce((total, character, place) => {
          const value = Number(character) * (place % 2 === 0 ? 2 : 1);
          return total + Math.floor(value / 10) + (value % 10);
        }, 0);
      return `${body}${(10 - (sum % 10)) % 10}`;
    });
    fc.assert(
      fc.property(card, (number) => {
        const guard = paymentGuard({ rails });
        const payload = payment('1', { rail: 'card', destination: number });
        const answer = guard(claimedMessage({ payload })) as { code: string; message: string };
        expect(answer.code).toBe('card_number_refused');
        expect(JSON.stringify(answer)).not.toContain(number.slice(0, 8));
      }),
    );
  });
});

describe('other destinations', () => {
  it.each([
    ['mobile_money', '+491701234567', undefined],
    ['mobile_money', '+254712345678', undefined],
    ['mobile_money', '491701234567', 'destination_invalid'],
    ['mobile_money', '+0491701234567', 'destination_invalid'],
    ['mobile_money', '+49 170 1234567', 'destination_invalid'],
    ['mobile_money', '+1234567890123456', 'destination_invalid'],
    ['mobile_money', '+12345', 'destination_invalid'],
    ['ledger', 'acc-0001', undefined],
    ['ledger', 'acc-1', 'destination_invalid'],
    ['odd', 'yes', undefined],
    ['odd', 'no', 'destination_invalid'],
  ])('P8 %s takes %s: %s', (rail, destination, code) => {
    // twice: an expression with the flag g remembers its position
    expect(judge(payment('1', { rail, destination }))).toBe(code);
    expect(judge(payment('1', { rail, destination }))).toBe(code);
  });

  it('P8 an expression with the flag g gives the same answer every time', () => {
    const guard = paymentGuard({ rails });
    const message = claimedMessage({
      payload: payment('1', { rail: 'ledger', destination: 'acc-0001' }),
    });
    expect([guard(message), guard(message), guard(message)]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });
});

describe('options', () => {
  it('P8 the fields may be anywhere in the payload', () => {
    const fields = {
      amount: 'payment.amount',
      currency: 'payment.currency',
      rail: 'via',
      destination: 'to.account',
    };
    const payload = `{"note": "\\"amount\\": 0}", "via": "bank", "to": {"account": "${iban}"}, "payment": {"x": [1, {"amount": 0}], "amount": 0.07, "currency": "EUR"}}`;
    expect(judge(payload, { fields })).toBeUndefined();
    expect(judge(payload)).toBe('rail_unknown');
  });

  it.each<[string, string]>([
    ['with an escape', '{"a": {"\\u0061mount": 1}}'],
    ['after another name with an escape', '{"a": {"\\n": 7, "\\"mount": 8, "amount": 1}}'],
    ['twice, and the last one counts', '{"a": {"amount": -1, "amount": 1}}'],
    ['in an object that is repeated', '{"a": {"amount": -1}, "a": {"amount": 1}}'],
    ['between spaces', '\n{\t"a" :\r{ "b" : [ { } ] , "amount" : 1 } }'],
  ])('P8 a field is found by its name %s', (_how, payload) => {
    const fields = { amount: 'a.amount', currency: 'c', rail: 'r', destination: 'd' };
    const rest = `,"c":"EUR","r":"bank","d":"${iban}"}`;
    expect(judge(payload.replace(/}$/, rest), { fields })).toBeUndefined();
  });

  it.each<[string, string]>([
    ['{"a": {"amount": 1}, "a": {}}', 'a.amount'],
    ['{"a": {"amount": 1}, "a": 2}', 'a.amount'],
    ['{"a": [{"amount": 1}]}', 'a.amount'],
    ['{"b": {"amount": 1}, "amount": 1}', 'a.amount'],
    // the name in the payload has a backspace, and the configured one a backslash
    ['{"a\\b": 1}', String.raw`a\b`],
    ['{"\\u0061moun": 1, "amount1": 1, "Amount": 1}', 'amount'],
  ])('P8 %s has no field %s', (payload, amount) => {
    const fields = { amount, currency: 'c', rail: 'r', destination: 'd' };
    const rest = `,"c":"EUR","r":"bank","d":"${iban}"}`;
    expect(judge(payload.replace(/}$/, rest), { fields })).toBe('amount_invalid');
  });

  it.each<[unknown, string]>([
    [undefined, 'paymentGuard.rails is undefined'],
    [{ rails: {} }, 'paymentGuard.rails is {}'],
    [{ rails: { a: { destination: 'bic' } } }, 'paymentGuard.rails.a.destination is "bic"'],
    [{ rails: { a: { destination: 'toString' } } }, 'destination is "toString"'],
    [{ rails: { a: { destination: 'iban', currencies: ['EURO'] } } }, 'currencies[0] is "EURO"'],
    [{ rails, amounts: 'float' }, 'paymentGuard.amounts is "float"'],
    [{ rails, fields: { amount: 'a..b' } }, 'paymentGuard.fields.amount is "a..b"'],
    [{ rails, field: {} }, 'paymentGuard.field is not an option'],
  ])('%j is refused with the mistake', (options, words) => {
    expect(() => paymentGuard(options as PaymentGuardOptions)).toThrow(words);
  });
});
