// Hash chain over sealed ranges, as the verifier computes it: from the content of each seal alone, because the
// database may have been manipulated. Must match `append_seal` in sql/functions/audit/seal.sql.

import { createHash } from 'node:crypto';

/** One link of the chain as the database renders it: hexadecimal digests, times as seconds with six decimals. */
export type Seal = {
  number: number;
  kind: 'attempts' | 'actions' | 'expired' | 'thinned';
  fromId: string | null;
  toId: string | null;
  since: string | null;
  until: string | null;
  rowCount: number;
  digest: string;
  details: string;
  sealedAt: string;
  previous: string;
  head: string;
};

/** A head as it is kept outside the database. */
export type Head = { number: number; head: string; sealedAt: string };

export type FindingKind = 'edited' | 'deleted' | 'added' | 'chain broken' | 'head missing';

/** One sign that sealed data was changed. */
export type Finding = {
  kind: FindingKind;
  /** The number of the seal. */
  seal: number;
  range: string | null;
  sentence: string;
  /** Keys of affected rows, as far as they can be known. */
  rows: string[];
};

export function rangeOf(seal: Seal): string {
  const span = `from ${timeOf(seal.since ?? '')} to ${timeOf(seal.until ?? '')}`;
  return seal.kind === 'actions'
    ? `operators' actions ${span}`
    : `attempts of messages ${seal.fromId} to ${seal.toId} that ended ${span}`;
}

export function headOf(seal: Seal): string {
  const lines = [
    'waybill seal 1',
    String(seal.number),
    seal.kind,
    seal.fromId ?? '',
    seal.toId ?? '',
    seal.since ?? '',
    seal.until ?? '',
    String(seal.rowCount),
    seal.digest,
    seal.details,
    seal.sealedAt,
    seal.previous,
  ];
  return createHash('sha256').update(lines.join('\n')).digest('hex');
}

/** Converts seconds with six decimals to a time that PostgreSQL reads without losing digits. */
export function timeOf(seconds: string): string {
  if (seconds.endsWith('Infinity')) return seconds.toLowerCase();
  const [whole = '', fraction = ''] = seconds.split('.');
  const iso = new Date(Number(whole) * 1000).toISOString();
  return iso.replace('.000Z', `.${fraction.padEnd(6, '0')}Z`);
}

/** One line per head, the format of `audit.heads.file`. */
export function headLine({ number, head, sealedAt }: Head): string {
  return JSON.stringify({ number, head, sealedAt });
}

/**
 * Reads heads from a file or a log: every line of JSON with a number and a head. Other lines are ignored. A head whose
 * line was cut short counts as missing.
 */
export function parseHeads(text: string): Head[] {
  return text.split('\n').flatMap((line) => {
    if (!line.includes('"head"')) return [];
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch {
      return [];
    }
    const { number, head, sealedAt } = value as Partial<Head>;
    if (typeof number !== 'number' || typeof head !== 'string') return [];
    return [{ number, head, sealedAt: typeof sealedAt === 'string' ? sealedAt : '' }];
  });
}
