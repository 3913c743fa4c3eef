// Verifies the audit: each link of the chain, each sealed range against its rows, and the chain against heads from
// outside. An attacker who can write to the database can rebuild the chain; only the heads from outside show that.

import { createHash } from 'node:crypto';

import { HiddenRowsError } from '../../core/errors.js';
import { OutsideHeads } from './outside-heads.js';
import { headOf, rangeOf, timeOf } from './chain.js';
import type { Finding, FindingKind, Head, Seal } from './chain.js';
import type { Database } from '../../database/connection.js';
import {
  digestDigits,
  exportedToFiles,
  hiddenTables,
  leafDigits,
  readContents,
  readLeaves,
  readRemovals,
  readRows,
  readSeals,
} from './sealed-rows.js';

export type Verification = {
  intact: boolean;
  seals: number;
  /** Rows that were checked and are unchanged. */
  rows: number;
  /** Ranges that retention has removed, according to the chain. */
  expired: number;
  /** The shortest time in days for which an expired day was kept; null if none expired. */
  keptDays: number | null;
  /** The times up to which attempts and actions are sealed. */
  sealedUntil: { attempts: string | null; actions: string | null };
  lastHead: { number: number; head: string } | null;
  /** The last seal whose head equals one from outside; null if there is none. */
  provenTo: number | null;
  findings: Finding[];
};

export type VerifyOptions = {
  heads?: readonly Head[];
  /** Attempts that expired sooner than this are a finding. */
  attemptsDays?: number;
  onProgress?: (seal: number) => void;
};

const pageSize = 500;
const shownRows = 10;
const dayMs = 86_400_000;

export async function verifySeals(
  database: Database,
  { heads = [], attemptsDays, onProgress = () => {} }: VerifyOptions = {},
): Promise<Verification> {
  const findings: Finding[] = [];
  const outside = new OutsideHeads(heads);
  const until: Record<'attempts' | 'actions', string | null> = { attempts: null, actions: null };
  const hidden = await hiddenTables(database);
  if (hidden.tables.length > 0) throw new HiddenRowsError(hidden.tables, hidden.login);
  let removals = await readRemovals(database);
  let [seals, rows, expired] = [0, 0, 0];
  let last: Seal | undefined;
  let keptDays: number | null = null;
  for (;;) {
    const page = await readSeals(database, last?.number ?? -1, pageSize);
    if (page.length === 0) break;
    for (const seal of page) {
      findings.push(...checkLink(seal, last));
      outside.compare(seal);
      last = seal;
      seals += 1;
      onProgress(seal.number);
      if (seal.kind === 'expired' || seal.kind === 'thinned') {
        findings.push(...premature(seal, attemptsDays));
        keptDays = Math.min(keptDays ?? Infinity, expiryOf(seal).keptDays);
      }
      if (seal.kind === 'expired') continue;
      if (seal.kind !== 'thinned') until[seal.kind] = later(until[seal.kind], seal.until ?? '');
      const { found, rowCount } = await checkRange(database, seal);
      // retention may have removed rows since the removals were read
      if (found.length > 0 && removalOf(seal, removals) === undefined)
        removals = await readRemovals(database);
      const removal = found.length > 0 ? removalOf(seal, removals) : undefined;
      const problems = removal
        ? await afterRemoval(database, seal, removal, found, rowCount)
        : found;
      findings.push(...problems);
      if (seal.kind === 'thinned') continue;
      if (removal && rowCount === 0) expired += 1;
      else if (problems.length === 0) rows += rowCount;
    }
  }
  findings.push(...outside.findings(last?.number ?? 0, await exportedToFiles(database)));
  return {
    intact: findings.length === 0,
    seals,
    rows,
    expired,
    keptDays,
    sealedUntil: {
      attempts: until.attempts && timeOf(until.attempts),
      actions: until.actions && timeOf(until.actions),
    },
    lastHead: last ? { number: last.number, head: last.head } : null,
    provenTo: outside.provenTo,
    findings: findings.toSorted((one, other) => one.seal - other.seal),
  };
}

/** Checks that a seal follows from the one before. */
function checkLink(seal: Seal, before: Seal | undefined): Finding[] {
  const { number = 0, head = '' } = before ?? {};
  const broken = (sentence: string): Finding => ({
    kind: 'chain broken',
    seal: seal.number,
    range: null,
    sentence,
    rows: [],
  });
  const found: Finding[] = [];
  if (seal.number !== number + 1)
    found.push(broken(`after seal ${number} comes seal ${seal.number}: those between are gone`));
  else if (seal.previous !== head)
    found.push(
      broken(`it does not follow from seal ${number}: one of the two was changed or replaced`),
    );
  if (headOf(seal) !== seal.head)
    found.push(broken('its head does not match its content: the seal itself was changed'));
  return found;
}

/** Returns what is wrong with a range; nothing if its rows are those that were sealed. */
async function checkRange(
  database: Database,
  seal: Seal,
): Promise<{ found: Finding[]; rowCount: number }> {
  const { rowCount, digest } = await readContents(database, seal);
  if (rowCount === seal.rowCount && digest === seal.digest) return { found: [], rowCount };
  const finding = (kind: FindingKind, sentence: string, rows: string[] = []): Finding => ({
    kind,
    seal: seal.number,
    range: rangeOf(seal),
    sentence,
    rows: rows.slice(0, shownRows),
  });
  const change = `it had ${seal.rowCount} rows and has ${rowCount}`;
  const text = rowCount === 0 ? '' : await readLeaves(database, seal);
  const leaves = text.match(new RegExp(`.{${leafDigits}}`, 'g')) ?? [];
  if (leaves.length !== seal.rowCount) {
    const by = rowCount - seal.rowCount;
    return {
      found: [finding(by === 0 ? 'edited' : by > 0 ? 'added' : 'deleted', change)],
      rowCount,
    };
  }
  const rows = await readRows(database, seal);
  const { unexpected, gone } = difference(
    rows.map(({ key, digest: whole }) => ({ key, leaf: whole.slice(0, leafDigits) })),
    leaves,
  );
  // an unknown row paired with a missing one counts as one edited row
  const edited = Math.min(unexpected.length, gone);
  const found: Finding[] = [];
  if (edited > 0)
    found.push(finding('edited', `${edited} of its rows are not as they were`, unexpected));
  if (gone > edited)
    found.push(finding('deleted', `${gone - edited} of its rows are gone: ${change}`));
  if (unexpected.length > edited)
    found.push(
      finding('added', `${unexpected.length - edited} rows were added: ${change}`, unexpected),
    );
  // the rows match their leaves but not the digest: the leaves were changed too
  if (found.length === 0) found.push(finding('edited', 'its rows are not those that were sealed'));
  return { found, rowCount };
}

/** What is wrong with a range after retention has removed rows of it. */
async function afterRemoval(
  database: Database,
  seal: Seal,
  removal: Seal,
  found: Finding[],
  rowCount: number,
): Promise<Finding[]> {
  if (rowCount === 0) return [];
  if (removal.kind === 'expired') return found;
  // the last record of thinning says which rows stay
  return seal.kind === 'thinned' ? [] : checkRemainder(database, seal);
}

/**
 * Checks the rows that retention has kept of a range: their digests must be among those of the range, which together
 * have the digest that was sealed. Rows that are gone are found by the record of thinning.
 */
async function checkRemainder(database: Database, seal: Seal): Promise<Finding[]> {
  const text = await readLeaves(database, seal);
  const rows = await readRows(database, seal);
  const isProven = createHash('sha256').update(text, 'hex').digest('hex') === seal.digest;
  const digests = new Set(text.match(new RegExp(`.{${digestDigits}}`, 'g')));
  const unexpected = rows.filter(({ digest }) => !isProven || !digests.has(digest));
  if (unexpected.length === 0) return [];
  return [
    {
      kind: 'edited',
      seal: seal.number,
      range: rangeOf(seal),
      sentence: `${unexpected.length} of the rows that retention has kept are not as they were`,
      rows: unexpected.slice(0, shownRows).map(({ key }) => key),
    },
  ];
}

function difference(
  rows: readonly { key: string; leaf: string }[],
  leaves: readonly string[],
): { unexpected: string[]; gone: number } {
  const left = new Map<string, number>();
  for (const leaf of leaves) left.set(leaf, (left.get(leaf) ?? 0) + 1);
  const unexpected: string[] = [];
  for (const { key, leaf } of rows) {
    const count = left.get(leaf) ?? 0;
    if (count === 0) unexpected.push(key);
    else left.set(leaf, count - 1);
  }
  return { unexpected, gone: [...left.values()].reduce((sum, count) => sum + count, 0) };
}

function expiryOf({ details }: Seal): { day: string; keptDays: number } {
  return JSON.parse(details) as { day: string; keptDays: number };
}

/** An expiry explains missing rows, so it must not be earlier than the retention that it states. */
function premature(expiry: Seal, attemptsDays = 0): Finding[] {
  const { day, keptDays } = expiryOf(expiry);
  const keptUntilMs = Date.parse(`${day}T00:00:00Z`) + (keptDays + 1) * dayMs;
  const sentence =
    Number(expiry.sealedAt) * 1000 < keptUntilMs
      ? `removed before the ${keptDays} days of their retention were over`
      : keptDays < attemptsDays
        ? `removed after ${keptDays} days instead of ${attemptsDays}`
        : undefined;
  if (sentence === undefined) return [];
  const { number: seal } = expiry;
  return [{ kind: 'deleted', seal, range: `attempts of ${day}`, sentence, rows: [] }];
}

/** The last record of retention that concerns a range; none if retention has removed nothing of it. */
function removalOf(
  { kind, number, fromId, toId }: Seal,
  removals: readonly Seal[],
): Seal | undefined {
  return removals.findLast(
    (removal) =>
      kind !== 'actions' &&
      number < removal.number &&
      (fromId ?? '') >= (removal.fromId ?? '') &&
      (toId ?? '') <= (removal.toId ?? ''),
  );
}

function later(one: string | null, other: string): string | null {
  if (other.endsWith('Infinity')) return one;
  return one === null || Number(other) > Number(one) ? other : one;
}
