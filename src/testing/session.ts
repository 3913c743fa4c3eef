// Session: the client of a test, and what the kit knows about its transaction. Every statement of the kit runs on this
// client, so it sees what the test has written. Some need the rights of the owner of the schema.

import { randomUUID } from 'node:crypto';

import { quoteIdentifier } from '../core/identifier.js';
import { adapt } from '../producer/adapters/adapt.js';
import { explainingSchema } from '../producer/adapters/schema-failures.js';
import type { Transaction } from '../producer/adapters/transaction.js';
import { TestKitError } from './errors.js';

export type Row = Record<string, unknown>;

export class TestSession {
  /** The claims of the kit are held under this id, as those of a relay are under its own. */
  readonly relayId = randomUUID();
  /** The schema, quoted. */
  readonly schema: string;
  /** A condition on a message `m`: it is one of this test. */
  readonly own: string;
  readonly #transaction: Transaction;
  /** The transaction in which the kit was created; undefined outside one. */
  readonly #inside: string | undefined;

  private constructor(schema: string, transaction: Transaction, inside: string | undefined) {
    this.schema = schema;
    this.#transaction = transaction;
    this.#inside = inside;
    this.own = inside === undefined ? 'true' : 'm.transaction_id = pg_current_xact_id()';
  }

  static async open(handle: unknown, schemaName: string): Promise<TestSession> {
    const adapted = adapt(handle, { because: 'the test kit runs its statements on your client' });
    const transaction = explainingSchema(adapted, {
      schema: schemaName,
      callee: 'the functions and tables',
      role: 'owner',
    });
    const [first, second] = [await transactionOf(transaction), await transactionOf(transaction)];
    const inside = first.id === second.id ? first.id : undefined;
    if (first.isolation !== 'read committed')
      throw new TestKitError(
        `the transactions of this client are in ${first.isolation.toUpperCase()}, and claims work in READ COMMITTED only: begin the test with BEGIN ISOLATION LEVEL READ COMMITTED`,
      );
    return new TestSession(quoteIdentifier(schemaName), transaction, inside);
  }

  get isInside(): boolean {
    return this.#inside !== undefined;
  }

  query(sql: string, parameters: readonly unknown[] = []): Promise<Row[]> {
    return this.#transaction.query(sql, parameters);
  }

  /** Refuses to go on after the end of the transaction: what the test enqueues now would be kept. */
  async refuseEnded(): Promise<void> {
    if (this.#inside === undefined || (await transactionOf(this.#transaction)).id === this.#inside)
      return;
    throw new TestKitError(
      'the transaction in which this test kit was created has ended: create one for each test, after BEGIN; if the tested code opens a transaction of its own, pass it the transaction of the test, or use ownDatabase',
    );
  }

  /**
   * Runs a handler in a savepoint, because its failed SQL on the client of the test would end the whole transaction.
   * What the handler wrote is undone only then, as it would be without the test.
   */
  async protect(what: string, work: () => Promise<void>): Promise<void> {
    if (!this.isInside) return work();
    await this.query('SAVEPOINT waybill_test');
    await work();
    try {
      await this.query('RELEASE SAVEPOINT waybill_test');
    } catch (error) {
      await this.query('ROLLBACK TO SAVEPOINT waybill_test').catch(() => {
        throw new TestKitError(
          `${what} has ended the transaction of the test: a handler that uses the client of the test must not run BEGIN, COMMIT or ROLLBACK on it`,
          { cause: error },
        );
      });
    }
  }
}

/** Outside a transaction, each statement has one of its own. */
async function transactionOf(transaction: Transaction): Promise<{ id: string; isolation: string }> {
  const [row] = await transaction.query(
    `SELECT pg_current_xact_id()::text AS id, current_setting('transaction_isolation') AS isolation`,
    [],
  );
  return { id: String(row?.['id']), isolation: String(row?.['isolation']) };
}
