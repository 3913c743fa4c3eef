// Billing consumer: writes the inbox and the balance in one transaction, so that each finalised turn counts once,
// however often its message arrives. It uses the dedupe key, which is the same for every delivery.

import { createInbox } from 'waybill/producer';

const inbox = createInbox();

/** @param {import('pg').Pool} pool */
export function createBilling(pool) {
  return async ({ tenant_id, dedupe_key, payload }) => {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      const { processed } = await inbox.process(
        client,
        { consumer: 'billing', dedupeKey: dedupe_key },
        () =>
          client.query(
            `INSERT INTO public.billing_balances AS b (tenant_id, turns, used_tokens) VALUES ($1, 1, $2)
             ON CONFLICT (tenant_id) DO UPDATE SET turns = b.turns + 1, used_tokens = b.used_tokens + excluded.used_tokens`,
            [tenant_id, payload.used_tokens],
          ),
      );
      await client.query('COMMIT');
      return processed;
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    } finally {
      client.release();
    }
  };
}
