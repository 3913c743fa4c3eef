// Test kit: assertions on enqueued messages, and delivery in the process of the test, with due times that the test moves.
// It works inside a transaction that is rolled back after each test, because everything runs on the test's own client.

import { resolveConfig } from '../config.js';
import type { Config } from '../config.js';
import {
  anything,
  checkOptions,
  flag,
  integer,
  list,
  optional,
  schemaName,
  text,
} from '../core/options.js';
import { delivered } from '../core/outcome.js';
import type { Outcome } from '../core/outcome.js';
import { resolveSettings } from '../destinations/destination.js';
import type { Destination } from '../destinations/destination.js';
import type { TransactionHandle } from '../producer/adapters/adapt.js';
import { definitionsOf } from '../relay/setup.js';
import { DeliverAll } from './deliver-all.js';
import type { DeliverAllOptions, DeliveryReport } from './deliver-all.js';
import { checkFailure, plainFailure, TestDestination } from './destinations.js';
import type { RecordedMessage } from './destinations.js';
import { TestKitError, unknownDestination } from './errors.js';
import { assertEnqueued, assertNotEnqueued, checkExpected, isAsExpected } from './messages.js';
import type { EnqueuedMessage, ExpectedMessage } from './messages.js';
import { TestSession } from './session.js';
import {
  advance,
  awaitedEndpoints,
  deadLetterFields,
  declare,
  findDestinations,
  readDeadLetters,
  readMessages,
  refuseRelays,
  removeMessages,
} from './tables.js';
import type { DeadLetter } from './tables.js';

export type TestKitOptions = {
  /** Default: `database.schema` of the configuration, or outbox. */
  schema?: string;
  /** The database is for tests only, so the kit may work outside a transaction: it delivers and removes all messages of the schema. Default false. */
  ownDatabase?: boolean;
  /** The names of destinations, other than handlers, that really send. Default: none; their messages are recorded. */
  send?: readonly string[];
};

export type TestKit = {
  /** Fails unless such a message was enqueued, or `count` of them; returns the first. */
  enqueued(expected: ExpectedMessage, options?: { count?: number }): Promise<EnqueuedMessage>;
  /** Fails if such a message was enqueued. */
  notEnqueued(expected: ExpectedMessage): Promise<void>;
  /** All messages, or those as expected, in the order of their enqueueing. */
  messages(expected?: ExpectedMessage): Promise<EnqueuedMessage[]>;
  /** Delivers until nothing is due. */
  deliverAll(options?: DeliverAllOptions): Promise<DeliveryReport>;
  /** Makes everything that is pending due earlier by this time, retries and delays alike. */
  advance(ms: number): Promise<void>;
  /** The next delivery to this destination fails, with an outcome or as if the destination had thrown the error. */
  failNext(destination: string, failure?: Outcome | Error, options?: { times?: number }): void;
  /** What was recorded instead of being sent, by one destination or by all. */
  recorded(destination?: string): RecordedMessage[];
  /** All dead letters, or those with these fields. */
  deadLetters(expected?: ExpectedDeadLetter): Promise<DeadLetter[]>;
  /** Removes the messages, and forgets what was recorded and what should fail. */
  reset(): Promise<void>;
};

export type ExpectedDeadLetter = { [Field in keyof DeadLetter]?: unknown };

/** Stands for an endpoint, which is never called: its messages are recorded. */
const endpoint: Destination = {
  kind: 'endpoint',
  settings: resolveSettings('endpoint', {}),
  deliver: () => delivered(),
};

const deadLetterKinds = Object.fromEntries(
  deadLetterFields.map((field) => [field, anything<unknown>()]),
);

const tenYearsMs = 315_360_000_000;

const deliverAllKinds = {
  skipDelays: flag(false),
  catchErrors: flag(false),
  maxDeliveries: integer({ min: 1, max: 1_000_000, default: 1000 }),
};

/**
 * Makes a test kit. In a transaction, it knows the messages of that transaction only, and everything ends with its
 * rollback. With `ownDatabase`, the handle may be a pool, and the kit works on all messages of the schema. Without a
 * configuration, it has nothing to deliver to.
 */
export async function createTestKit(
  handle: TransactionHandle,
  config?: Config,
  options: TestKitOptions = {},
): Promise<TestKit> {
  const { schema, ownDatabase, send } = checkOptions('testKit', options, {
    schema: optional(schemaName),
    ownDatabase: flag(false),
    send: optional(list(text({ meaning: 'the name of a destination' }), { min: 0, max: 1000 })),
  });
  const session = await TestSession.open(handle, schema ?? config?.database?.schema ?? 'outbox');
  if (!session.isInside && !ownDatabase)
    throw new TestKitError(
      'this client is in no transaction: run BEGIN before createTestKit and ROLLBACK after the test, or, for a database that is for tests only, pass { ownDatabase: true }',
    );
  if (!session.isInside) await refuseRelays(session);
  const destinations =
    config === undefined ? [] : await destinationsOf(session, config, send ?? []);
  return makeKit(session, destinations, config !== undefined);
}

/** Stores the definitions, so that messages are routed when they are enqueued. */
async function destinationsOf(
  session: TestSession,
  config: Config,
  send: readonly string[],
): Promise<TestDestination[]> {
  const setup = resolveConfig(config);
  await declare(session, definitionsOf(setup), setup.application.name);
  // a destination in stream mode reads the log, which has committed messages only
  const served = Object.entries(setup.destinations).filter(
    ([, { settings }]) => settings.mode === 'deliver',
  );
  const names = served.map(([name]) => name);
  for (const name of send) if (!names.includes(name)) throw unknownDestination(name, names);
  const ids = await findDestinations(session, names);
  return served.map(
    ([name, destination]) =>
      new TestDestination(name, ids.get(name) ?? 0, destination, send.includes(name)),
  );
}

function makeKit(
  session: TestSession,
  destinations: TestDestination[],
  hasConfig: boolean,
): TestKit {
  const named = (name: string): TestDestination => {
    const found = destinations.find((destination) => destination.name === name);
    const names = destinations.map((destination) => destination.name);
    if (found === undefined) throw unknownDestination(name, names);
    return found;
  };
  const addEndpoints = async (): Promise<void> => {
    for (const { name, id } of await awaitedEndpoints(session))
      if (destinations.every((destination) => destination.id !== id))
        destinations.push(new TestDestination(name, id, endpoint, false));
  };
  const where = session.isInside ? 'in this transaction' : 'in this database';
  let isDelivering = false;

  async function read(expected?: ExpectedMessage): Promise<EnqueuedMessage[]> {
    await session.refuseEnded();
    const all = await readMessages(session);
    return expected === undefined ? all : all.filter((message) => isAsExpected(message, expected));
  }

  return {
    async enqueued(expected, options) {
      const { count } = checkOptions('enqueued', options, {
        count: optional(integer({ min: 1, max: 1_000_000 })),
      });
      const checked = checkExpected('enqueued', expected);
      return assertEnqueued(await read(), checked, { count, where });
    },
    async notEnqueued(expected) {
      const checked = checkExpected('notEnqueued', expected);
      assertNotEnqueued(await read(), checked);
    },
    async messages(expected) {
      return read(expected && checkExpected('messages', expected));
    },
    async deliverAll(options) {
      const checked = checkOptions('deliverAll', options, deliverAllKinds);
      if (!hasConfig)
        throw new TestKitError(
          'deliverAll() has nothing to deliver to: give createTestKit your configuration',
        );
      if (isDelivering)
        throw new TestKitError(
          'deliverAll() was called while it runs: await it, and call it from no handler',
        );
      isDelivering = true;
      try {
        await session.refuseEnded();
        await addEndpoints();
        return await new DeliverAll(session, destinations, checked).run();
      } finally {
        isDelivering = false;
      }
    },
    async advance(ms) {
      integer({ min: 0, max: tenYearsMs })('advance', ms);
      await session.refuseEnded();
      await advance(session, ms);
    },
    failNext(destination, failure = plainFailure, options) {
      const { times } = checkOptions('failNext', options, {
        times: integer({ min: 1, max: 1_000_000, default: 1 }),
      });
      named(destination).failNext(checkFailure(failure), times);
    },
    recorded(destination) {
      const all = destination === undefined ? destinations : [recordingOf(named(destination))];
      return all.flatMap(({ recorded }) => recorded);
    },
    async deadLetters(expected = {}) {
      checkOptions('deadLetters', expected, deadLetterKinds);
      await session.refuseEnded();
      const all = await readDeadLetters(session);
      return all.filter((letter) => isAsExpected(letter, expected));
    },
    async reset() {
      await session.refuseEnded();
      await removeMessages(
        session,
        destinations.map(({ id }) => id),
      );
      for (const destination of destinations) destination.reset();
    },
  };
}

/** A handler that is called records nothing, and an empty list would mislead. */
function recordingOf(destination: TestDestination): TestDestination {
  if (!destination.isCalled) return destination;
  throw new TestKitError(
    `${destination.name} records nothing, because it is called: recorded() is for destinations other than handlers that are not listed in send`,
  );
}
