// Billing consumer: records the usage and changes the balance in one transaction, so that each finalised turn counts
// once, however often and however late its message arrives. It uses the dedupe key, the same for every delivery. The
// record is a table of its own and not Waybill's inbox, because an inbox forgets after some time.

import type { Pool } from 'pg';

import type { ClaimedMessage } from './store.js';

/** Returns a consumer; it says whether the message was new. */
export function createBilling(pool: Pool) {
  return async ({
    tenant_id,
    dedupe_key,
    payload,
  }: Pick<ClaimedMessage, 'tenant_id' | 'dedupe_key' | 'payload'>): Promise<boolean> => {
    const { rows } = await pool.query<{ billed: boolean }>(
      `WITH billed AS (
         INSERT INTO public.billed_usage (dedupe_key, tenant_id, used_tokens) VALUES ($1, $2, $3)
         ON CONFLICT (dedupe_key) DO NOTHING RETURNING tenant_id, used_tokens),
       balance AS (
         INSERT INTO public.billing_balances AS b (tenant_id, turns, used_tokens)
         SELECT tenant_id, 1, used_tokens FROM billed
         ON CONFLICT (tenant_id) DO UPDATE SET turns = b.turns + 1, used_tokens = b.used_tokens + excluded.used_tokens)
       SELECT EXISTS (SELECT FROM billed) AS billed`,
      [dedupe_key, tenant_id, (payload as { used_tokens: number }).used_tokens],
    );
    return rows[0]?.billed === true;
  };
}
