// WAL positions: how far the primary has written, and how far a standby has replayed. A standby that has replayed a
// position that was read after a commit shows that commit.

import type { Database } from '../../database/connection.js';

/** Bytes since the beginning of the WAL. */
export type Position = bigint;

/** A position that no standby ever reaches. */
export const unreachable: Position = 2n ** 64n - 1n;

/**
 * The insert position, not the flush position: a commit is visible before it is on disk. At the start of a page, the
 * primary counts the page header and a standby does not, so the header is subtracted.
 */
export async function readPosition(primary: Database): Promise<Position> {
  const [row] = await primary.query<{ position: string }>(
    'read the position of the log',
    `SELECT (p.at - CASE WHEN p.at % pg_size_bytes(current_setting('wal_segment_size')) = 40 THEN 40
                         WHEN p.at % current_setting('wal_block_size')::int = 24 THEN 24 ELSE 0 END)::text AS position
       FROM (SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS at) p`,
  );
  if (row === undefined) throw new Error('the primary does not say how far its log is');
  return BigInt(row.position);
}

/** The position that a standby has replayed, and the time of its last replayed commit by the primary's clock. */
export async function readReplayed(
  standby: Database,
): Promise<{ position: Position; committedAtMs: number | null }> {
  const [row] = await standby.query<{ position: string | null; committedAtMs: number | null }>(
    'read the position of the replica',
    `SELECT (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::text AS position,
            (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000)::float8 AS "committedAtMs"`,
  );
  return {
    position: BigInt(row?.position ?? 0),
    committedAtMs: row?.committedAtMs ?? null,
  };
}

/** The form in the header: 16/B374D848. */
export function positionText(position: Position): string {
  return `${(position >> 32n).toString(16)}/${(position & 0xff_ff_ff_ffn).toString(16)}`.toUpperCase();
}

/** Undefined if the text is not a position. */
export function parsePosition(text: string | undefined): Position | undefined {
  const [, high, low] = /^([\da-f]{1,8})\/([\da-f]{1,8})$/i.exec(text ?? '') ?? [];
  if (high === undefined || low === undefined) return undefined;
  return (BigInt(`0x${high}`) << 32n) + BigInt(`0x${low}`);
}
