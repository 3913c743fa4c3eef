// Finalises a turn: writes its state and its usage message in one transaction, so that every ended turn that bears quota
// is billed and nothing else is. The same finalisation again, even at the same moment, finds the message of the first.

import { enqueueOnce } from './store.js';
import type { Runner } from './store.js';

export const namespace = 'chat';
export const topic = 'chat.usage';
const outcomes = ['completed', 'failed', 'aborted'] as const;

/** All ids are uuids. */
export type Turn = { tenant_id: string; turn_id: string; request_id: string };
export type Ending = Turn & { outcome: string; used_tokens: number };
export type TurnRow = Turn & {
  state: string;
  reserved_tokens: string | null;
  used_tokens: string | null;
};

/** The usage message, and whether it was already enqueued; undefined for a turn that bears no quota. */
export async function finaliseTurn(
  client: Runner,
  { tenant_id, turn_id, request_id, outcome, used_tokens }: Ending,
): Promise<{ id: string; already_enqueued: boolean } | undefined> {
  if (!outcomes.some((known) => known === outcome))
    throw new Error(`outcome is ${JSON.stringify(outcome)}: use one of ${outcomes.join(', ')}`);
  await client.query('BEGIN', []);
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
    const message =
      turn.reserved_tokens === null
        ? undefined
        : await enqueueOnce(client, {
            namespace,
            topic,
            tenant_id,
            dedupe_key: `${tenant_id}/${turn_id}/${request_id}`,
            payload: { turn_id, request_id, outcome, used_tokens },
          });
    await client.query('COMMIT', []);
    return message;
  } catch (error) {
    await client.query('ROLLBACK', []);
    throw error;
  }
}

async function lockTurn(client: Runner, { tenant_id, turn_id, request_id }: Turn) {
  const { rows } = await client.query(
    'SELECT * FROM public.chat_turns WHERE tenant_id = $1 AND turn_id = $2 AND request_id = $3 FOR UPDATE',
    [tenant_id, turn_id, request_id],
  );
  const [turn] = rows as TurnRow[];
  if (turn === undefined)
    throw new Error(`there is no turn ${turn_id} of the request ${request_id}`);
  return turn;
}

/** A read: it emits nothing. */
export async function readTurn(
  client: Runner,
  { tenant_id, turn_id }: Pick<Turn, 'tenant_id' | 'turn_id'>,
): Promise<TurnRow | undefined> {
  const { rows } = await client.query(
    'SELECT * FROM public.chat_turns WHERE tenant_id = $1 AND turn_id = $2',
    [tenant_id, turn_id],
  );
  return (rows as TurnRow[])[0];
}

/** reserved_tokens null: the turn bears no quota. */
export async function beginTurn(
  client: Runner,
  { tenant_id, turn_id, request_id, reserved_tokens }: Turn & { reserved_tokens: number | null },
): Promise<void> {
  await client.query(
    'INSERT INTO public.chat_turns (tenant_id, turn_id, request_id, reserved_tokens) VALUES ($1, $2, $3, $4)',
    [tenant_id, turn_id, request_id, reserved_tokens],
  );
}
