// Formats of payment destinations. Each is checked in its machine-readable form: no spaces, capital letters, and check
// digits if the format has them.

/** The length of an IBAN by country, from the registry. */
const ibanLengths: ReadonlyMap<string, number> = new Map(
  (
    'AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 ' +
    'FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 ' +
    'LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 ' +
    'RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30'
  )
    .split(' ')
    .map((entry): [string, number] => [entry.slice(0, 2), Number(entry.slice(2))]),
);

export function isIban(text: string): boolean {
  if (!/^[A-Z]{2}\d{2}[A-Z0-9]+$/.test(text) || text.length !== ibanLengths.get(text.slice(0, 2)))
    return false;
  // 00, 01 and 99 can pass the check, but are never assigned
  const check = Number(text.slice(2, 4));
  return check >= 2 && check <= 98 && remainder97(text.slice(4) + text.slice(0, 4)) === 1;
}

/**
 * The remainder modulo 97 of the text as a number, each letter as two digits (A is 10). Digit by digit, so that it
 * stays small.
 */
function remainder97(text: string): number {
  let remainder = 0;
  for (const character of text) {
    const value = Number.parseInt(character, 36);
    remainder = (remainder * (value > 9 ? 100 : 10) + value) % 97;
  }
  return remainder;
}

/** A token of a card vault that contains no card number: card numbers must not be stored in an outbox. */
export function isCardToken(text: string): boolean {
  return /^tok_[A-Za-z0-9_-]{4,250}$/.test(text) && !holdsCardNumber(text);
}

/** Whether 12 to 19 digits in a row, ignoring separators, have the check digit of a card number. */
export function holdsCardNumber(text: string): boolean {
  const runs = text.match(/\d(?:[ ._-]?\d)+/g) ?? [];
  return runs.some((run) => isCardNumber(run.replaceAll(/[ ._-]/g, '')));
}

/** A longer run counts too if a card number stands at its beginning or end. */
function isCardNumber(digits: string): boolean {
  if (digits.length <= 19) return digits.length >= 12 && passesLuhn(digits);
  return [13, 14, 15, 16, 19].some(
    (length) => passesLuhn(digits.slice(0, length)) || passesLuhn(digits.slice(-length)),
  );
}

function passesLuhn(digits: string): boolean {
  let sum = 0;
  for (let place = 0; place < digits.length; place += 1) {
    const digit = Number(digits[digits.length - 1 - place]);
    const doubled = place % 2 === 1 ? digit * 2 : digit;
    sum += doubled > 9 ? doubled - 9 : doubled;
  }
  return sum % 10 === 0;
}

/** E.164: a plus, the country and the number, 15 digits at most. */
export function isMobileNumber(text: string): boolean {
  return /^\+[1-9]\d{6,14}$/.test(text);
}
