// The kinds of tests and what each runs on. The database suite runs twice: on the newest supported PostgreSQL,
// and on the oldest in a schema whose name needs quoting, because a forgotten quote shows nowhere else. Where
// the oldest is missing, the newest serves for that too. Projects of one PostgreSQL version share a server.

import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';

import { findChromium } from './test/support/chromium.js';
import { findPostgres15 } from './test/support/postgres-15.js';

/** On a machine that does much else at the same time, a wait may end too soon. What needed its second try is shown; a proof gets none. */
const retries = process.env['CI'] ? 1 : 0;

/** Many small files: a process and all of src anew for each would cost more than most of them do. They share no more than that, and each its own database. */
const sharedProcesses = { isolate: false };

/** What is about the default schema, whatever the project's own: on the same PostgreSQL it would run twice alike. */
const inDefaultSchemaOnly = [
  'test/database/docs-{blocks,first-steps,frameworks,inbox}.test.ts',
  'test/database/example-*.test.ts',
];

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
    ...order
  }: {
    globalSetup?: string[];
    exclude?: string[];
    sequence?: { groupOrder: number };
    maxWorkers?: number;
    isolate?: boolean;
    maxConcurrency?: number;
    retry?: number;
  } = {},
): TestProjectInlineConfiguration {
  return {
    test: {
      name,
      include: [`test/${folder}/**/*.test.ts`],
      globalSetup: ['test/support/global-setup.ts', ...globalSetup],
      provide: { postgresMajor, schema },
      testTimeout: 30_000,
      hookTimeout: 60_000,
      retry: retries,
      ...order,
    },
  };
}

export default defineConfig({
  test: {
    // More than a small machine has cores: these files wait for more than half of their time.
    maxWorkers: 5,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          testTimeout: 30_000,
          ...sharedProcesses,
        },
      },
      onPostgres('database-18', 'database', newestMajor, defaultSchema, sharedProcesses),
      findPostgres15() === undefined
        ? onPostgres('database-18-renamed', 'database', newestMajor, schemaThatNeedsQuoting, {
            ...sharedProcesses,
            exclude: inDefaultSchemaOnly,
          })
        : onPostgres('database-15', 'database', 15, schemaThatNeedsQuoting, sharedProcesses),
      onPostgres('contract', 'contract', newestMajor),
      // What these set up cannot be taken back: each has a process of its own.
      onPostgres('process', 'process', newestMajor),
      onPostgres('adapters', 'adapters', newestMajor, defaultSchema, {
        globalSetup: ['test/adapters/prepare.ts'],
      }),
      // Not beside the rest: a browser that gets no processor looks like a page that hangs.
      ...(findChromium() === undefined
        ? []
        : [
            onPostgres('browser', 'browser', newestMajor, defaultSchema, {
              sequence: { groupOrder: 1 },
              maxWorkers: 3,
            }),
          ]),
      // After everything else and two files at a time: these tests start many processes each, and wait while leases run out.
      onPostgres('fault', 'fault', newestMajor, defaultSchema, {
        sequence: { groupOrder: 2 },
        maxWorkers: 2,
        maxConcurrency: 2,
        retry: 0,
      }),
    ],
  },
});
