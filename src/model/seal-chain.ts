// The hash chain over sealed stretches, as whoever verifies it computes it: from what each seal says, without a word
// from the database about whether it is right. `append_seal` in sql/functions/seal.sql says the same.

import { createHash } from 'node:crypto';

/** One link of the chain, in the words of the database: hexadecimal digests, times as seconds with six decimals. */
export type Seal = {
  number: number;
  kind: 'attempts' | 'actions' | 'expired';
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

/** What is kept outside the database. */
export type Head = { number: number; head: string; sealedAt: string };

export type FindingKind = 'edited' | 'deleted' | 'added' | 'chain broken' | 'head missing';

/** What somebody did to what was sealed. */
export type Finding = {
  kind: FindingKind;
  /** The number of the seal. */
  seal: number;
  stretch: string | null;
  sentence: string;
  /** Some of the rows, as far as they can be known. */
  rows: string[];
};

export function stretchOf(seal: Seal): string {
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

/** Seconds with six decimals, as PostgreSQL reads a time without losing the last digits. */
export function timeOf(seconds: string): string {
  if (seconds.endsWith('Infinity')) return seconds.toLowerCase();
  const [whole = '', fraction = ''] = seconds.split('.');
  const iso = new Date(Number(whole) * 1000).toISOString();
  return iso.replace('.000Z', `.${fraction.padEnd(6, '0')}Z`);
}

/** One line for each head, as `audit.heads.file` has them. */
export function headLine({ number, head, sealedAt }: Head): string {
  return JSON.stringify({ number, head, sealedAt });
}

/**
 * The heads in a file or a log: every line of JSON with a number and a head. Other lines, such as those of a log or
 * one that was cut short, are passed over; a cut line is missed as a head.
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
