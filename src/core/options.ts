// Option checks: unknown keys and invalid values are refused with the key, the value and the allowed range. Each
// part of Waybill describes its own options with the kinds below.

import { ConfigurationError, shown } from './errors.js';

type Kind<T> = (name: string, value: unknown) => T;
type Kinds = Record<string, Kind<unknown>>;
type Checked<K extends Kinds> = { [Name in keyof K]: ReturnType<K[Name]> };

export function checkOptions<K extends Kinds>(
  where: string,
  options: object | undefined,
  kinds: K,
): Checked<K> {
  const given = (options ?? {}) as Record<string, unknown>;
  if (typeof given !== 'object' || Array.isArray(given)) {
    throw new ConfigurationError(`${where} is ${shown(options)}: give an object`);
  }
  for (const key of Object.keys(given)) {
    if (!Object.hasOwn(kinds, key)) {
      throw new ConfigurationError(
        `${where}.${key} is not an option: use ${Object.keys(kinds).join(', ')}`,
      );
    }
  }
  const entries = Object.entries(kinds).map(([key, kind]) => [
    key,
    kind(`${where}.${key}`, given[key]),
  ]);
  return Object.fromEntries(entries) as Checked<K>;
}

export function refuse(name: string, value: unknown, allowed: string): never {
  throw new ConfigurationError(`${name} is ${shown(value)}: ${allowed}`);
}

export function integer(range: { min: number; max: number; default?: number }): Kind<number> {
  return (name, value) => {
    const chosen = value === undefined ? range.default : value;
    if (
      typeof chosen !== 'number' ||
      !Number.isInteger(chosen) ||
      chosen < range.min ||
      chosen > range.max
    ) {
      refuse(name, value, `give a whole number from ${range.min} to ${range.max}`);
    }
    return chosen;
  };
}

/** A number that need not be whole. */
export function number(range: { min: number; max: number; default?: number }): Kind<number> {
  return (name, value) => {
    const chosen = value === undefined ? range.default : value;
    if (typeof chosen !== 'number' || !(chosen >= range.min && chosen <= range.max))
      refuse(name, value, `give a number from ${range.min} to ${range.max}`);
    return chosen;
  };
}

/** The given kind, or null, which switches the option off. */
export function nullable<T>(kind: Kind<T>): Kind<T | null> {
  return (name, value) => (value === null ? null : kind(name, value));
}

export function optional<T>(kind: Kind<T>): Kind<T | undefined> {
  return (name, value) => (value === undefined ? undefined : kind(name, value));
}

export function flag(fallback: boolean): Kind<boolean> {
  return (name, value) => {
    const chosen = value === undefined ? fallback : value;
    return typeof chosen === 'boolean' ? chosen : refuse(name, value, 'give true or false');
  };
}

export function text(rule: { default?: string; pattern?: RegExp; meaning: string }): Kind<string> {
  return (name, value) => {
    const chosen = value === undefined ? rule.default : value;
    if (
      typeof chosen !== 'string' ||
      chosen === '' ||
      (rule.pattern && !rule.pattern.test(chosen))
    ) {
      refuse(name, value, `give ${rule.meaning}`);
    }
    return chosen;
  };
}

/** One of these words; the first is the default. */
export function choice<T extends string>(...words: readonly [T, ...T[]]): Kind<T> {
  return (name, value) => {
    const chosen = value === undefined ? words[0] : value;
    return (
      words.find((word) => word === chosen) ??
      refuse(name, value, `give ${words.map((word) => `'${word}'`).join(' or ')}`)
    );
  };
}

/** The name of a schema. It is quoted wherever it is used, so only its length is checked. */
export const schemaName: Kind<string> = (name, value) => {
  const chosen = value === undefined ? 'outbox' : value;
  const bytes =
    typeof chosen === 'string' && !chosen.includes('\0') ? Buffer.byteLength(chosen) : 0;
  if (bytes < 1 || bytes > 63) refuse(name, value, 'give a schema name of 1 to 63 bytes');
  return chosen as string;
};

export function list<T>(kind: Kind<T>, size: { min: number; max: number }): Kind<readonly T[]> {
  return (name, value) => {
    if (!Array.isArray(value) || value.length < size.min || value.length > size.max) {
      refuse(name, value, `give a list of ${size.min} to ${size.max} values`);
    }
    return value.map((item, index) => kind(`${name}[${index}]`, item));
  };
}

/** Options that another part resolves; without them, or with null, undefined. */
export function whenGiven<T>(resolve: (options: never) => T): Kind<T | undefined> {
  return (_name, value) =>
    value === undefined || value === null ? undefined : resolve(value as never);
}

/** Any value, because another part checks it. */
export function anything<T>(): Kind<T> {
  return (_name, value) => value as T;
}
