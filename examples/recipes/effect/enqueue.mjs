// Enqueues a message in the transaction of the effect that calls it.

import { SqlClient } from '@effect/sql';
import { Effect, Runtime } from 'effect';
import { createOutbox } from 'waybill/producer';

const outbox = createOutbox();

export const enqueue = (message) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient;
    // the runtime of this fiber, which has the connection of the transaction
    const run = Runtime.runPromise(yield* Effect.runtime());
    const tx = { query: (text, parameters) => run(sql.unsafe(text, parameters)) };
    return yield* Effect.tryPromise(() => outbox.enqueue(tx, message));
  });
