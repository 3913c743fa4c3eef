// The test projects and what each runs on. Database tests run on the newest supported PostgreSQL, in a schema whose
// name needs quoting, because a forgotten quote shows nowhere else. The core and version-dependent tests also run on
// the oldest supported PostgreSQL, in the default schema; with `--mode full` (`npm run test:full`), all database tests
// do, and the core and version-dependent tests also run on the versions between. Projects of one PostgreSQL version share
// a server, except those of tests that wait for its transactions. Databases have partitions for a week; with `--mode full`
// for sixty days as migrated.

import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

import { findChromium } from './test/support/chromium.js';
import {
  findMiddlePostgres,
  findPostgres15,
  middleVersions,
} from './test/support/postgres-versions.js';

/**
 * Many small files: a new process with all of src for each would cost more than most of the tests. They share only the
 * process; each file has its own database.
 */
const sharedProcesses = { isolate: false };

/** Examples and documents use the default schema. */
const inDefaultSchemaOnly = [
  'test/database/docs-{blocks,first-steps,frameworks,inbox,receiver,storage}.test.ts',
  'test/database/example-*.test.ts',
];

/**
 * The core, and everything that depends on the PostgreSQL version: migrations, catalogs, roles, plans, snapshots,
 * extensions.
 */
const dependsOnVersion = [
  'ack-nack',
  'claim*',
  'cursor-{destinations,partition-hash}',
  'cursors',
  'dedupe',
  'definer-attacks',
  'docs-sql',
  'doctor-{schema,server,storage}',
  'enqueue*',
  'fencing',
  'health-check',
  'hosts',
  'inbox',
  'lanes-{plans,races,sequences}',
  'leases',
  'maintenance',
  'migrate',
  'partitions',
  'payloads',
  'plans',
  'privileges',
  'relay-delivery',
  'replica',
  'retention-partitions',
  'roles-{install,matrix}',
  'routes',
  'scheduled-drains',
  'settle',
  'supabase',
  'versions',
  'watch',
  'watch-{changes,partitions,statements,tables}',
].map((name) => `test/database/${name}.test.ts`);

/**
 * These tests wait until the transactions of a server have ended, in any of its databases. They have a server of their
 * own, so that long transactions of other tests do not hold them up.
 */
const awaitingTransactions = [
  'fairness*',
  'mode-changes',
  'seal-attempts',
  'stream-reader',
  'wake-up',
].map((name) => `test/database/${name}.test.ts`);

/** Those of them that depend on the version: they compare snapshots and transaction ids. */
const transactionsDependOnVersion = ['mode-changes', 'stream-reader', 'wake-up'].map(
  (name) => `test/database/${name}.test.ts`,
);

/**
 * The files that take longest are the first of their projects. Without this the largest come first, and a project ends
 * with a long test and an idle machine.
 */
const longest = [
  // These run beside the order proof. The crash proof comes after it: both need most of a core, and have deadlines.
  'fault/order-proof',
  'fault/order-guards',
  'fault/rolling-upgrade',
  'fault/driver-errors',
  'fault/stream-crash',
  'fault/crash-proof',
  'fault/sleep',
  'fault/idle-relay',
  'fault/bench',
  'fault/dev',
  'fault/embedded-postgres',
  'fault/container',
  'unit/site',
  'unit/cli',
  'unit/published-types',
  'database/docs-first-steps',
  'database/example-registrations',
  'database/event-loop',
  'database/hosts',
  // waits for the next minute of pg_cron
  'database/scheduled-drains',
  'contract/suite',
  'contract/kafka',
  'adapters/crm',
].map((name) => `test/${name}.test.ts`);

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- the sequencer's own, which returns a new array
    const sorted = await super.sort(files);
    const rank = ({ moduleId }: TestSpecification): number => {
      const found = longest.findIndex((name) => moduleId.endsWith(name));
      return found === -1 ? longest.length : found;
    };
    const projects = [...new Set(sorted.map(({ project }) => project))];
    return projects.flatMap((project) =>
      sorted
        .filter((file) => file.project === project)
        .toSorted((one, other) => rank(one) - rank(other)),
    );
  }
}

/** `--mode full` */
const isFull = process.argv.includes('full');

/** Files that only `npm run test:full` runs: they take minutes, and a quicker test covers the most likely mistakes. */
const onlyInFull = ['order-guards', 'driver-long-values'].map(
  (name) => `test/fault/${name}.test.ts`,
);

/**
 * Fault tests that mostly wait, for intervals, leases and processes, and have no tight deadlines: they run beside the
 * processor-bound projects.
 */
const waitingFaults = [
  'bench',
  'clock',
  'container',
  'crash-judge',
  'crash-restart',
  'dev',
  'embedded-postgres',
  'idle-relay',
  'operator-restart',
  'sleep',
].map((name) => `test/fault/${name}.test.ts`);

/** Set by scripts/test-all.mjs, which runs files with failed tests once more. */
const isSecondTry = process.env['WAYBILL_TEST_SECOND_TRY'] !== undefined;

/** Proofs get no second try: a message that is lost in one of two runs is lost. */
const proofs = [
  'crash-proof',
  'inbox',
  'order-guards',
  'order-proof',
  'rolling-upgrade',
  'stream-crash',
  'two-applications',
].map((name) => `test/fault/${name}.test.ts`);

/** Two files at a time: these tests start many processes each, and have deadlines. */
const afterEverythingElse = { sequence: { groupOrder: 2 }, maxWorkers: 2, maxConcurrency: 2 };

const newestMajor = 18;
const defaultSchema = 'outbox';
const schemaThatNeedsQuoting = 'Waybill "odd"';

function onPostgres(
  name: string,
  folder: string,
  postgresMajor: number,
  schema: string = defaultSchema,
  {
    globalSetup = [],
    server = String(postgresMajor),
    fewPartitions = false,
    ...order
  }: {
    globalSetup?: string[];
    /** Projects with the same name here share a server. */
    server?: string;
    /** Partitions for a week instead of sixty days, which saves a fifth of the processor time. */
    fewPartitions?: boolean;
    include?: string[];
    exclude?: string[];
    sequence?: { groupOrder: number };
    maxWorkers?: number;
    isolate?: boolean;
    maxConcurrency?: number;
  } = {},
): TestProjectInlineConfiguration {
  return {
    test: {
      name,
      include: [`test/${folder}/**/*.test.ts`],
      globalSetup: ['test/support/global-setup.ts', ...globalSetup],
      provide: { postgresMajor, server, schema, isFull, fewPartitions: fewPartitions && !isFull },
      testTimeout: 60_000,
      hookTimeout: 60_000,
      ...order,
    },
  };
}

export default defineConfig({
  test: {
    // More workers than a small machine has cores: these files spend more than half of their time waiting.
    maxWorkers: 6,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          provide: { isFull },
          testTimeout: 60_000,
          ...sharedProcesses,
        },
      },
      onPostgres('database-18', 'database', newestMajor, schemaThatNeedsQuoting, {
        ...sharedProcesses,
        exclude: [...inDefaultSchemaOnly, ...awaitingTransactions],
        fewPartitions: true,
      }),
      onPostgres('transactions-18', 'database', newestMajor, schemaThatNeedsQuoting, {
        ...sharedProcesses,
        include: awaitingTransactions,
        server: 'transactions-18',
        fewPartitions: true,
      }),
      onPostgres('documents', 'database', newestMajor, defaultSchema, {
        ...sharedProcesses,
        include: inDefaultSchemaOnly,
        fewPartitions: true,
      }),
      ...(findPostgres15() === undefined
        ? []
        : [
            onPostgres('database-15', 'database', 15, defaultSchema, {
              ...sharedProcesses,
              ...(isFull ? {} : { include: dependsOnVersion }),
              exclude: awaitingTransactions,
              fewPartitions: true,
            }),
            onPostgres('transactions-15', 'database', 15, defaultSchema, {
              ...sharedProcesses,
              include: isFull ? awaitingTransactions : transactionsDependOnVersion,
              server: 'transactions-15',
              fewPartitions: true,
            }),
          ]),
      ...(isFull ? middleVersions : []).flatMap((major) =>
        findMiddlePostgres(major) === undefined
          ? []
          : [
              onPostgres(`database-${major}`, 'database', major, defaultSchema, {
                ...sharedProcesses,
                include: dependsOnVersion,
              }),
            ],
      ),
      onPostgres('contract', 'contract', newestMajor, defaultSchema, sharedProcesses),
      // These files change state that cannot be restored, so each has its own process.
      onPostgres('process', 'process', newestMajor),
      onPostgres('adapters', 'adapters', newestMajor, defaultSchema, {
        globalSetup: ['test/adapters/prepare.ts'],
      }),
      // Not in parallel with other projects: a browser without processor time looks like a page that hangs.
      ...(findChromium() === undefined
        ? []
        : [
            onPostgres('browser', 'browser', newestMajor, defaultSchema, {
              ...sharedProcesses,
              sequence: { groupOrder: 1 },
              maxWorkers: 3,
            }),
          ]),
      onPostgres('waiting', 'fault', newestMajor, defaultSchema, {
        include: waitingFaults,
        // the benches create roles, which all databases of a server share
        server: 'waiting-18',
        maxConcurrency: 2,
      }),
      onPostgres('fault', 'fault', newestMajor, defaultSchema, {
        ...afterEverythingElse,
        exclude: [...waitingFaults, ...proofs, ...(isFull ? [] : onlyInFull)],
      }),
      ...(isSecondTry
        ? []
        : [
            onPostgres('proofs', 'fault', newestMajor, defaultSchema, {
              ...afterEverythingElse,
              include: proofs,
              exclude: isFull ? [] : onlyInFull,
            }),
          ]),
    ],
  },
});
