// JSON text given by a producer. It is sent unchanged, so numbers beyond double precision survive. Text that
// PostgreSQL could not store is refused here, because an error in the database would abort the caller's transaction.

import { MessageRefusedError, shown } from './errors.js';
import { maxDepth, refuseForbidden } from './json.js';

/**
 * The text, and its size in bytes as PostgreSQL writes it: without exponents, and with one space after each comma
 * and colon. Escapes that PostgreSQL would not write are counted unchanged, so the real size can be smaller.
 */
export type JsonText = { text: string; bytes: number };

// the range of numeric
const maxDigitsBefore = 131_072;
const maxDigitsAfter = 16_383;

export function checkJsonText(field: string, text: unknown): JsonText {
  if (typeof text !== 'string')
    throw new MessageRefusedError(field, `${shown(text)} is not text: give JSON as a string`);
  try {
    JSON.parse(text);
  } catch (error) {
    throw new MessageRefusedError(
      field,
      `${shown(text)} is not JSON (${(error as Error).message}): give text such as {"userId": 42}`,
    );
  }
  refuseForbidden(field, text);
  return { text, bytes: Buffer.byteLength(text) + scan(field, text) };
}

/** For a text made by JSON.stringify. A text far below the limit is not scanned. */
export function measured(field: string, text: string, limit: number): JsonText {
  const bytes = Buffer.byteLength(text);
  return { text, bytes: bytes * mostWrittenOut <= limit ? bytes : bytes + scan(field, text) };
}

/** 1e308 has five characters, and 309 digits when written out. */
const mostWrittenOut = 64;

const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const space = 0x20;
const point = 0x2e;
const zero = 0x30;
const nine = 0x39;
const upperE = 0x45;
const openingBracket = 0x5b;
const backslash = 0x5c;
const closingBracket = 0x5d;
const lowerE = 0x65;
const openingBrace = 0x7b;
const closingBrace = 0x7d;

/** Scans valid JSON once; returns how many more bytes it has as PostgreSQL writes it. */
function scan(field: string, text: string): number {
  let depth = 0;
  let more = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === quote) {
      at = endOfString(text, at);
    } else if (unit === comma || unit === colon) {
      more += 1;
    } else if (unit <= space) {
      more -= 1;
    } else if (unit === openingBracket || unit === openingBrace) {
      depth += 1;
      if (depth > maxDepth) refuseDepth(field);
    } else if (unit === closingBracket || unit === closingBrace) {
      depth -= 1;
    } else if (unit >= zero && unit <= nine) {
      const start = at;
      at = endOfDigits(text, start);
      const next = text.charCodeAt(at + 1);
      if (next === lowerE || next === upperE || at - start >= maxDigitsAfter) {
        const [number = ''] = text.slice(start).match(/^[\d.]+(e[+-]?\d+)?/i) ?? [];
        more += checkNumber(field, number);
        at = start + number.length - 1;
      }
    }
  }
  return more;
}

/** The position of the number's last digit, before its exponent. */
function endOfDigits(text: string, start: number): number {
  for (let end = start; ; end += 1) {
    const next = text.charCodeAt(end + 1);
    // NaN after the last character
    if (!(next >= zero && next <= nine) && next !== point) return end;
  }
}

function endOfString(text: string, start: number): number {
  for (let end = start; ;) {
    end = text.indexOf('"', end + 1);
    let backslashes = 0;
    while (text.charCodeAt(end - 1 - backslashes) === backslash) backslashes += 1;
    if (backslashes % 2 === 0) return end;
  }
}

/** Refuses a number outside the range of numeric; returns how much longer it is without its exponent. */
function checkNumber(field: string, number: string): number {
  const [mantissa = '', exponent = '0'] = number.split(/e/i);
  const [before = '', after = ''] = mantissa.split('.');
  const digitsBefore = (before === '0' ? 0 : before.length) + Number(exponent);
  const digitsAfter = after.length - Number(exponent);
  if (digitsBefore > maxDigitsBefore || digitsAfter > maxDigitsAfter) {
    throw new MessageRefusedError(
      field,
      `has the number ${number.length > 40 ? `${number.slice(0, 39)}…` : number}, which PostgreSQL cannot store: ` +
        `give at most ${maxDigitsBefore} digits before and ${maxDigitsAfter} after the decimal point, or send it as a string`,
    );
  }
  const fraction = digitsAfter > 0 ? digitsAfter + 1 : 0;
  const writtenOut = Math.max(digitsBefore, 1) + fraction;
  return Math.max(writtenOut - number.length, 0);
}

function refuseDepth(field: string): never {
  throw new MessageRefusedError(
    field,
    `is nested deeper than ${maxDepth} levels: flatten it, or send it as a string`,
  );
}
