// What the verifier reads: the chain of seals, the current rows of a sealed range, the record of exports, and tables
// that hide rows from this login. Uses only PostgreSQL's built-in functions: an attacker who can change rows can change
// Waybill's functions too. Must match attempt_digest and action_digest in sql/functions/audit/seal.sql.

import { timeOf } from './chain.js';
import type { Seal } from './chain.js';
import type { Database } from '../../database/connection.js';

export type Contents = { rowCount: number; digest: string };
/** A row of a range: its key and its digest. */
export type SealedRow = { key: string; digest: string };

const attemptText = `jsonb_build_array(a.message_id, a.destination_id, a.claim_no, a.tries, a.state,
  extract(epoch FROM a.claimed_at)::text, extract(epoch FROM a.ended_at)::text, a.relay_id, a.latency_ms, a.error_code,
  a.remote_code, a.error_message, a.reference, a.response)::text`;
const actionText = `jsonb_build_array(a.id, extract(epoch FROM a.at)::text, a.actor, a.action, a.subject, a.count,
  a.database_user)::text`;

/** The query for the rows of a range: their keys, their place in the order, their digests. */
function rowsOf(schema: string, seal: Seal): { sql: string; values: unknown[] } {
  const span = [timeOf(seal.since ?? ''), timeOf(seal.until ?? '')];
  if (seal.kind === 'actions') {
    return {
      sql: `SELECT format('action %s', a.id) AS key, a.id AS place, sha256(convert_to(${actionText}, 'UTF8')) AS digest
              FROM ${schema}.operator_actions a WHERE a.at >= $1 AND a.at < $2`,
      values: span,
    };
  }
  return {
    sql: `SELECT format('message %s destination %s claim %s', a.message_id, a.destination_id, a.claim_no) AS key,
                 (a.message_id, a.destination_id, a.claim_no) AS place, sha256(convert_to(${attemptText}, 'UTF8')) AS digest
            FROM ${schema}.attempts a
           WHERE a.message_id >= $3 AND a.message_id < $4 AND a.ended_at >= $1 AND a.ended_at < $2`,
    values: [...span, seal.fromId, seal.toId],
  };
}

export async function readContents(database: Database, seal: Seal): Promise<Contents> {
  const { sql, values } = rowsOf(database.schema, seal);
  const [row] = await database.query<{ count: string; digest: string }>(
    'read a range',
    `SELECT count(*)::text AS count,
            encode(sha256(coalesce(string_agg(r.digest, ''::bytea ORDER BY r.place), ''::bytea)), 'hex') AS digest
       FROM (${sql} OFFSET 0) r`,
    values,
  );
  return { rowCount: Number(row?.count ?? 0), digest: row?.digest ?? '' };
}

export async function readRows(database: Database, seal: Seal): Promise<SealedRow[]> {
  const { sql, values } = rowsOf(database.schema, seal);
  return database.query<SealedRow>(
    'read the rows of a range',
    `SELECT r.key, encode(r.digest, 'hex') AS digest FROM (${sql} OFFSET 0) r ORDER BY r.place`,
    values,
  );
}

/** The beginning of a digest that is stored for each row: eight bytes, in hexadecimal digits. */
export const leafDigits = 16;
/** A whole digest, which is stored if retention has removed other rows of the range. */
export const digestDigits = 64;

/** The leaves as they were sealed, one after the other; empty once retention has removed them together with their rows. */
export async function readLeaves(database: Database, seal: Seal): Promise<string> {
  const [row] = await database.query<{ leaves: string }>(
    'read leaves',
    `SELECT encode(leaves, 'hex') AS leaves FROM ${database.schema}.seal_leaves WHERE number = $1`,
    [seal.number],
  );
  return row?.leaves ?? '';
}

type SealText = Omit<Seal, 'number' | 'rowCount'> & { number: string; rowCount: string };

const sealColumns = `number::text AS number, kind, from_id AS "fromId", to_id AS "toId", extract(epoch FROM since)::text AS since,
  extract(epoch FROM until)::text AS until, row_count::text AS "rowCount", encode(digest, 'hex') AS digest,
  details::text AS details, extract(epoch FROM sealed_at)::text AS "sealedAt", encode(previous, 'hex') AS previous,
  encode(head, 'hex') AS head`;

/** Seals after this number, in the order of the chain. */
export async function readSeals(database: Database, after: number, limit: number): Promise<Seal[]> {
  const rows = await database.query<SealText>(
    'read seals',
    `SELECT ${sealColumns} FROM ${database.schema}.seals s WHERE s.number > $1 ORDER BY s.number LIMIT $2`,
    [after, limit],
  );
  return rows.map(sealOf);
}

/** What retention has removed, by the chain: whole days, or days except some rows. */
export async function readRemovals(database: Database): Promise<Seal[]> {
  const rows = await database.query<SealText>(
    'read removals',
    `SELECT ${sealColumns} FROM ${database.schema}.seals s WHERE s.kind IN ('expired', 'thinned') ORDER BY s.number`,
  );
  return rows.map(sealOf);
}

function sealOf(row: SealText): Seal {
  return { ...row, number: Number(row.number), rowCount: Number(row.rowCount) };
}

/** The number of the last head that any file has received, by the database's record. */
export async function exportedToFiles(database: Database): Promise<number> {
  const [row] = await database.query<{ number: string }>(
    'read exports',
    `SELECT coalesce(max(number), 0)::text AS number FROM ${database.schema}.seal_exports WHERE sink LIKE 'file %'`,
  );
  return Number(row?.number ?? 0);
}

/**
 * Tables of which this login cannot see every row, because row-level security applies and no policy shows it all rows.
 * Reads the catalogs, because the functions of the schema may have been changed.
 */
export async function hiddenTables(
  database: Database,
): Promise<{ tables: string[]; login: string }> {
  const read = ['attempts', 'operator_actions', 'seals', 'seal_leaves', 'seal_exports'];
  const [row] = await database.query<{ tables: string[]; login: string }>(
    'look for hidden rows',
    `SELECT current_user::text AS login, coalesce(array_agg(c.relname::text ORDER BY c.relname) FILTER (
              WHERE row_security_active(c.oid) AND (p.sees_all IS NOT TRUE OR p.is_restricted)), '{}') AS tables
       FROM unnest($1::text[]) t(name) JOIN pg_class c ON c.oid = t.name::regclass
       CROSS JOIN LATERAL (
         SELECT bool_or(p.polpermissive AND pg_get_expr(p.polqual, p.polrelid) = 'true') AS sees_all,
                bool_or(NOT p.polpermissive) AS is_restricted
           FROM pg_policy p
          WHERE p.polrelid = c.oid AND p.polcmd IN ('r', '*')
            AND EXISTS (SELECT FROM unnest(p.polroles) r WHERE CASE WHEN r = 0 THEN true ELSE pg_has_role(r, 'USAGE') END)) p`,
    [read.map((table) => `${database.schema}.${table}`)],
  );
  return row ?? { tables: read, login: 'this login' };
}
