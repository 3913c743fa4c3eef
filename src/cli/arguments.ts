// Parsers for arguments and flags of commands.

import { InvalidArgumentError } from 'commander';

import { timeOf } from '../core/time.js';
import { isUuid } from '../core/uuid.js';
import { payloadPath } from '../listing/payload-filter.js';
import type { PayloadFilter } from '../listing/payload-filter.js';

export function wholeNumber(value: string): number {
  if (!/^\d+$/.test(value) || Number(value) < 1)
    throw new InvalidArgumentError('give a whole number of at least 1');
  return Number(value);
}

export function messageId(text: string): string {
  if (!isUuid(text)) throw new InvalidArgumentError('give a message id: a UUID.');
  return text;
}

export function time(text: string): Date {
  const date = timeOf(text);
  if (date === null) throw new InvalidArgumentError('give a time such as 2026-01-31T08:00:00Z.');
  return date;
}

/** Parses TYPE/ID. */
export function aggregate(text: string): { type: string; id: string } {
  const cut = text.indexOf('/');
  if (cut < 1 || cut === text.length - 1)
    throw new InvalidArgumentError('give TYPE/ID, for example order/4711.');
  return { type: text.slice(0, cut), id: text.slice(cut + 1) };
}

/** Parses FIELD=VALUE, and adds it to those before. */
export function payloadValue(text: string, before: PayloadFilter = {}): PayloadFilter {
  const cut = text.indexOf('=');
  const field = text.slice(0, cut);
  try {
    if (cut < 1 || cut === text.length - 1) throw new Error('give FIELD=VALUE');
    if (Object.hasOwn(before, field)) throw new Error(`give ${field} once`);
    payloadPath({ [field]: text.slice(cut + 1) });
  } catch (error) {
    throw new InvalidArgumentError(`${(error as Error).message}, for example orderId=4711.`);
  }
  return { ...before, [field]: text.slice(cut + 1) };
}

/** A version of the package, or none. */
export function packageVersion(text: string): string {
  if (!/^(?:none|\d+\.\d+\.\d+(?:-[\dA-Za-z.-]+)?)$/.test(text))
    throw new InvalidArgumentError('give a version of Waybill such as 0.2.0.');
  return text;
}
