// The platform's outbox interface over Waybill: enqueue, and a store that is bound to a worker and a namespace. A store
// can end only what it holds now, by lease and by attempt. A call that comes too late throws a LeaseLostError and
// changes nothing.

/** A client or a pool of node-postgres, or any other object with this method. */
export type Runner = {
  query(sql: string, values: unknown[]): Promise<{ rows: unknown[] }>;
};

export type Message = {
  namespace: string;
  topic: string;
  /** A uuid; it must be the first component of the dedupe key. */
  tenant_id?: string | null;
  dedupe_key?: string | null;
  payload: unknown;
};

export type ClaimedMessage = {
  id: string;
  namespace: string;
  topic: string;
  tenant_id: string | null;
  dedupe_key: string | null;
  payload: unknown;
  /** 1 at the first claim. */
  attempts: number;
  created_at: Date;
};

/** Durations are in milliseconds. */
export type ClaimOptions = { batch_size: number; lease_duration: number; max_attempts: number };
export type Settings = { max_attempts: number; base_delay: number; max_delay: number };

export class LeaseLostError extends Error {
  override name = 'LeaseLostError';
}

/** Which transaction a statement runs in: the server process, and when the transaction began. */
const mark = `concat_ws(' ', pg_backend_pid(), extract(epoch FROM now()))`;

/** Writes a message in the caller's transaction. Returns its id, or that of the first message with this dedupe key. */
export async function enqueue(runner: Runner, message: Message): Promise<string> {
  return (await enqueueOnce(runner, message)).id;
}

/** The same, and whether the message was already enqueued. */
export async function enqueueOnce(
  runner: Runner,
  { namespace, topic, tenant_id = null, dedupe_key = null, payload }: Message,
): Promise<{ id: string; already_enqueued: boolean }> {
  // outside a transaction, each of these statements has its own, and the second one does nothing
  const asked = await runner.query(`SELECT ${mark} AS mark`, []);
  const { rows } = await runner.query(
    `SELECT e.id, e.duplicate AS already_enqueued FROM modkit.enqueue($1, $2, $3, $4, $5) e WHERE ${mark} = $6::text`,
    [
      namespace,
      topic,
      tenant_id,
      dedupe_key,
      JSON.stringify(payload),
      (asked.rows[0] as { mark: string } | undefined)?.mark,
    ],
  );
  const [answer] = rows as { id: string; already_enqueued: boolean }[];
  if (answer === undefined)
    throw new Error(
      'enqueue needs the transaction of the operation: run BEGIN on this client first; a pool has none',
    );
  return answer;
}

export type Store = ReturnType<typeof createStore>;

/** worker_id: any text that no other worker has. */
export function createStore(
  client: Runner,
  { worker_id, namespace }: { worker_id: string; namespace: string },
) {
  /** The number of the attempt that this store holds, by message. */
  const held = new Map<string, number>();

  async function first<Row>(sql: string, values: unknown[]): Promise<Row | undefined> {
    return (await client.query(sql, [namespace, ...values])).rows[0] as Row | undefined;
  }

  async function end(verb: 'ack' | 'nack', id: string, values: string[]): Promise<void> {
    const attempt = held.get(id);
    held.delete(id);
    const places = values.map((_, index) => `, $${index + 5}`).join('');
    const answer =
      attempt === undefined
        ? undefined
        : await first<{ done: boolean }>(`SELECT modkit.${verb}($1, $2, $3, $4${places}) AS done`, [
            worker_id,
            id,
            attempt,
            ...values,
          ]);
    if (answer?.done !== true)
      throw new LeaseLostError(`${verb} of ${id}: worker ${worker_id} does not hold it`);
  }

  return {
    worker_id,
    namespace,

    /** The settings of the namespace, which never change while its dispatchers live. */
    async settings(): Promise<Settings> {
      const row = await first<Record<string, unknown>>('SELECT * FROM modkit.settings($1)', []);
      return {
        max_attempts: Number(row?.['max_attempts']),
        base_delay: Number(row?.['base_delay_ms']),
        max_delay: Number(row?.['max_delay_ms']),
      };
    },

    /** max_attempts: that of the namespace; another one is refused. */
    async claim_batch({
      batch_size,
      lease_duration,
      max_attempts,
    }: ClaimOptions): Promise<ClaimedMessage[]> {
      const { rows } = await client.query(
        `SELECT * FROM modkit.claim_batch($1, $2, $3, $4 * interval '1 millisecond', $5)`,
        [namespace, worker_id, batch_size, lease_duration, max_attempts],
      );
      return (rows as (ClaimedMessage & { attempt: number })[]).map(({ attempt, ...message }) => {
        held.set(message.id, attempt);
        return { ...message, namespace };
      });
    },

    ack: (id: string) => end('ack', id, []),
    // PostgreSQL refuses NUL in a text
    nack: (id: string, error: unknown) =>
      end('nack', id, [String(error).replaceAll('\u0000', '\uFFFD')]),

    /** Gives back what was claimed and never sent: no attempt is spent. */
    async release(ids: string[]): Promise<void> {
      for (const id of ids) held.delete(id);
      await first('SELECT modkit.release($1, $2, $3)', [worker_id, ids]);
    },
  };
}
