// Finalises a turn: writes its state and its usage message in one transaction, so that every ended turn is billed and
// nothing else is. The same finalisation again, even at the same moment, finds the message of the first.

import { enqueue } from './store.mjs';

export const namespace = 'chat';
export const topic = 'chat.usage';
const outcomes = ['completed', 'failed', 'aborted'];

/** @param {import('pg').ClientBase} client */
export async function finaliseTurn(
  client,
  { tenant_id, turn_id, request_id, outcome, used_tokens },
) {
  if (!outcomes.includes(outcome))
    throw new Error(`outcome is ${JSON.stringify(outcome)}: use one of ${outcomes.join(', ')}`);
  await client.query('BEGIN');
  try {
    const turn = await lockTurn(client, { tenant_id, turn_id, request_id });
    if (turn.state === 'running')
      await client.query(
        `UPDATE public.chat_turns SET state = $3, used_tokens = $4, finalised_at = now()
          WHERE tenant_id = $1 AND turn_id = $2`,
        [tenant_id, turn_id, outcome, used_tokens],
      );
    else if (turn.state !== outcome || turn.used_tokens !== String(used_tokens))
      throw new Error(
        `the turn ${turn_id} was finalised before: ${turn.state}, ${turn.used_tokens} tokens`,
      );
    const message = await enqueue(client, {
      namespace,
      topic,
      tenant_id,
      dedupe_key: `${tenant_id}/${turn_id}/${request_id}`,
      payload: { turn_id, request_id, outcome, used_tokens },
    });
    await client.query('COMMIT');
    return message;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

async function lockTurn(client, { tenant_id, turn_id, request_id }) {
  const { rows } = await client.query(
    'SELECT state, used_tokens FROM public.chat_turns WHERE tenant_id = $1 AND turn_id = $2 AND request_id = $3 FOR UPDATE',
    [tenant_id, turn_id, request_id],
  );
  if (rows.length === 0)
    throw new Error(`there is no turn ${turn_id} of the request ${request_id}`);
  return rows[0];
}

/** A read: it emits nothing. */
export async function readTurn(client, { tenant_id, turn_id }) {
  const { rows } = await client.query(
    'SELECT * FROM public.chat_turns WHERE tenant_id = $1 AND turn_id = $2',
    [tenant_id, turn_id],
  );
  return rows[0];
}

export async function beginTurn(client, { tenant_id, turn_id, request_id, reserved_tokens }) {
  await client.query(
    'INSERT INTO public.chat_turns (tenant_id, turn_id, request_id, reserved_tokens) VALUES ($1, $2, $3, $4)',
    [tenant_id, turn_id, request_id, reserved_tokens],
  );
}
