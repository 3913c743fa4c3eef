// Generates the tables of options by asking the code itself: an unknown key makes it list the known keys, a wrong value
// makes it state the allowed range, and no value makes it use its default. Only the meanings come from the comments
// beside the types. The sections are in docs-options-destinations.mjs and docs-options-general.mjs.

import { readFileSync } from 'node:fs';

import { destinationSections } from './docs-options-destinations.mjs';
import { generalSections } from './docs-options-general.mjs';

/**
 * @typedef {{ meaning?: string, fallback?: string, allowed?: string }} Words
 * @typedef {{ file: string, type?: string, resolve: (options: object) => object, base?: object, also?: string[],
 *   without?: string[], words?: Record<string, Words>, more?: Partial<Section>[] }} Section
 * @typedef {import('./docs.mjs').Load} Load
 */

/** One markdown table per section. @param {Load} load @returns {Promise<Record<string, string>>} */
export async function optionTables(load) {
  // settings of this machine must not appear as defaults
  for (const name of ['DATABASE_URL', 'DATABASE_DIRECT_URL', 'DATABASE_REPLICA_URL'])
    delete process.env[name];
  const general = { ...(await generalSections(load)), ...(await destinationSections(load)) };
  const sections = withFeatures(general, await featureSections(load));
  return Object.fromEntries(
    Object.entries(sections).map(([name, section]) => [name, optionTable(name, section)]),
  );
}

/** The tables of features. @param {Load} load @returns {Promise<Record<string, Partial<Section>>[]>} */
async function featureSections(load) {
  const { features } = await load('features/all');
  return Promise.all(features.flatMap((feature) => (feature.options ? [feature.options()] : [])));
}

/**
 * A feature adds tables, and options to the tables of others.
 * @param {Record<string, Section>} sections @param {Record<string, Partial<Section>>[]} added
 */
function withFeatures(sections, added) {
  const all = { ...sections };
  for (const [name, section] of added.flatMap((each) => Object.entries(each))) {
    const known = all[name];
    all[name] = /** @type {Section} */ (
      known === undefined ? section : { ...known, more: [...(known.more ?? []), section] }
    );
  }
  return all;
}

/** @param {string} name @param {Section} section */
function optionTable(name, section) {
  const comments = new Map(
    [section, ...(section.more ?? [])].flatMap(({ file, type }) =>
      file && type ? [...readComments(file, type)] : [],
    ),
  );
  const keys = [...knownKeys(section), ...(section.also ?? [])].filter(
    (key) => !section.without?.includes(key),
  );
  const rows = keys.map((key) => {
    const { meaning, fallback } = splitDefault(comments.get(key) ?? '');
    const words = section.words?.[key] ?? {};
    const text = words.meaning ?? meaning;
    if (text === '')
      throw new Error(`${name}.${key} has no comment in src/${section.file}, and no words here`);
    const value = defaultOf(section, key);
    if (
      fallback !== undefined &&
      typeof value === 'number' &&
      plain(fallback) !== String(value) &&
      !/MiB|host/.test(fallback)
    )
      throw new Error(
        `the comment on ${name}.${key} says ${fallback}, but the default is ${value}`,
      );
    const shownDefault =
      words.fallback ?? (value === undefined ? (fallback ?? '–') : formatted(value));
    return `| \`${key}\` | ${text} | ${shownDefault} | ${words.allowed ?? allowedOf(section, key)} |`;
  });
  return ['| option | meaning | default | allowed |', '|---|---|---|---|', ...rows].join('\n');
}

/** @param {Section} section */
function knownKeys(section) {
  const refusal = refusalOf(() => section.resolve({ ...section.base, noSuchOption: 1 }));
  const list = /: use (.*)$/.exec(refusal ?? '')?.[1];
  if (list === undefined)
    throw new Error(`src/${section.file} does not list its options: ${refusal}`);
  return list.split(', ');
}

/** @param {Section} section @param {string} key */
function defaultOf(section, key) {
  const resolved = /** @type {Record<string, unknown>} */ (section.resolve({ ...section.base }));
  const value = resolved[key];
  return typeof value === 'object' && value !== null ? undefined : value;
}

/** The allowed range: what the error for a wrong value says after "give". @param {Section} section @param {string} key */
function allowedOf(section, key) {
  const refusal = refusalOf(() => section.resolve({ ...section.base, [key]: {} }));
  const allowed = /: give (.*)$/.exec(refusal ?? '')?.[1];
  if (allowed === undefined)
    throw new Error(`${key} of src/${section.file} does not say what is allowed: ${refusal}`);
  const range = allowed
    .replace(
      /^a whole number from (\d+) to (\d+)$/,
      (_, from, to) => `${thousands(from)} to ${thousands(to)}`,
    )
    .replaceAll('|', '\\|');
  return isNullable(section, key) ? `${range}, or \`null\`` : range;
}

/** @param {Section} section @param {string} key */
function isNullable(section, key) {
  try {
    const resolved = /** @type {Record<string, unknown>} */ (
      section.resolve({ ...section.base, [key]: null })
    );
    return key in resolved && resolved[key] === null;
  } catch {
    return false;
  }
}

/** @param {() => unknown} work */
function refusalOf(work) {
  try {
    work();
    return undefined;
  } catch (error) {
    return /** @type {Error} */ (error).message;
  }
}

/** The comment above each property of a type. @param {string} file @param {string} type @returns {Map<string, string>} */
function readComments(file, type) {
  const source = readFileSync(new URL(`../src/${file}`, import.meta.url), 'utf8');
  const start = source.indexOf(`export type ${type} =`);
  if (start < 0) throw new Error(`src/${file} has no type ${type}`);
  const body = source.slice(start, source.indexOf('\n\n', start));
  const property = /\/\*\*\s+(?:\* )?((?:(?!\*\/).)*?)\s+\*\/\s+(\w+)\??:/gs;
  return new Map(
    [...body.matchAll(property)].map(([, text = '', key]) => [
      key,
      text.replaceAll(/\s*\n\s*\* ?/g, ' '),
    ]),
  );
}

/** "How long … Default 30,000." → the meaning and the default. @param {string} comment */
function splitDefault(comment) {
  const found = /^(.*?)\s*Default:? (.*?)\.$/.exec(comment);
  if (found === null) return { meaning: comment.replaceAll('|', '\\|'), fallback: undefined };
  return { meaning: found[1], fallback: found[2] };
}

/** @param {string} text */
function plain(text) {
  return text.replaceAll(/[,`]/g, '');
}

/** @param {unknown} value */
function formatted(value) {
  return typeof value === 'number' ? thousands(String(value)) : `\`${String(value)}\``;
}

/** @param {string} digits */
function thousands(digits) {
  return digits.replaceAll(/\B(?=(\d{3})+$)/g, ',');
}
