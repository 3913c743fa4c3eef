// The files that `waybill init` writes besides migrations: a configuration, and an example that enqueues a message in a
// transaction of the project's own library.

import path from 'node:path';

import type { Library, Project } from './detect.js';

export const configText = `import { defineConfig, handler } from 'waybill';

// What handlers use is passed to this function, so that tests can pass their own.
export function configFor({ print = console.log } = {}) {
  return defineConfig({
    destinations: {
      welcome: handler((message) => {
        print(\`message \${message.id}, try \${message.tries}:\`, message.payload);
      }),
    },
    routes: [{ topic: 'user.*', to: 'welcome' }],
  });
}

// The database is that of DATABASE_URL.
export default configFor();
`;

type Example = {
  /** The library, as its users call it. */
  name: string;
  imports: string[];
  setup: string;
  /** The body of `register`, which returns what `enqueue` returns. */
  register: string;
  close: string;
};

const enqueue = (handle: string): string =>
  `outbox.enqueue(${handle}, { topic: 'user.registered', payload: { email } })`;

/** A callback that enqueues on the transaction that it is called with. */
const inTransaction = (
  handle: string,
  call: string,
): string => `  return ${call}(async (${handle}) => {
    // your own changes come here, in the same transaction
    return ${enqueue(handle)};
  });`;

const examples: Record<Exclude<Library, 'prisma'>, Example> = {
  pg: {
    name: 'node-postgres',
    imports: [`import pg from 'pg';`],
    setup: 'const pool = new pg.Pool({ connectionString: url });',
    register: `  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    // your own changes come here, in the same transaction
    const message = await ${enqueue('client')};
    await client.query('COMMIT');
    return message;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }`,
    close: 'pool.end()',
  },
  postgres: {
    name: 'postgres.js',
    imports: [`import postgres from 'postgres';`],
    setup: 'const sql = postgres(url);',
    register: inTransaction('tx', 'sql.begin'),
    close: 'sql.end()',
  },
  'drizzle-orm/node-postgres': {
    name: 'Drizzle',
    imports: [`import { drizzle } from 'drizzle-orm/node-postgres';`],
    setup: 'const db = drizzle(url);',
    register: inTransaction('tx', 'db.transaction'),
    close: 'db.$client.end()',
  },
  'drizzle-orm/postgres-js': {
    name: 'Drizzle',
    imports: [`import { drizzle } from 'drizzle-orm/postgres-js';`],
    setup: 'const db = drizzle(url);',
    register: inTransaction('tx', 'db.transaction'),
    close: 'db.$client.end()',
  },
  kysely: {
    name: 'Kysely',
    imports: [`import { Kysely, PostgresDialect } from 'kysely';`, `import pg from 'pg';`],
    setup: `const pool = new pg.Pool({ connectionString: url });
const db = new Kysely({ dialect: new PostgresDialect({ pool }) });`,
    register: inTransaction('trx', 'db.transaction().execute'),
    close: 'db.destroy()',
  },
  knex: {
    name: 'Knex',
    imports: [`import knex from 'knex';`],
    setup: `const db = knex({ client: 'pg', connection: url });`,
    register: inTransaction('trx', 'db.transaction'),
    close: 'db.destroy()',
  },
  typeorm: {
    name: 'TypeORM',
    imports: [`import { DataSource } from 'typeorm';`],
    setup: `const dataSource = new DataSource({ type: 'postgres', url });`,
    register: `  if (!dataSource.isInitialized) await dataSource.initialize();
${inTransaction('manager', 'dataSource.transaction')}`,
    close: 'dataSource.destroy()',
  },
};

/** `file`: where the example goes, relative to the project. */
export function exampleText(project: Project, file: string): string {
  const { library, typescript } = project;
  const { name, imports, setup, register, close } =
    library === 'prisma' ? prismaExample(project, file) : examples[library];
  return `// Waybill with ${name}: the application's own rows and the message are written together, or neither is.

${imports.filter((line) => !line.includes(`'.`)).join('\n')}
import { createOutbox } from 'waybill/producer';
${imports
  .filter((line) => line.includes(`'.`))
  .map((line) => `\n${line}\n`)
  .join('')}
const url = process.env['DATABASE_URL'];
if (!url) throw new Error('set DATABASE_URL to the address of your database');
${setup}
const outbox = createOutbox();

export async function register(email${typescript ? ': string' : ''}) {
${register}
}

export const close = () => ${close};
`;
}

function prismaExample({ prisma, typescript }: Project, file: string): Example {
  const { file: client = null, hasAdapter = false } = prisma ?? {};
  const from = client === null ? '@prisma/client' : relativeImport(file, client, typescript);
  return {
    name: 'Prisma',
    imports: [
      ...(hasAdapter ? [`import { PrismaPg } from '@prisma/adapter-pg';`] : []),
      `import { PrismaClient } from '${from}';`,
    ],
    setup: hasAdapter
      ? 'const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });'
      : 'const prisma = new PrismaClient();',
    register: inTransaction('tx', 'prisma.$transaction'),
    close: 'prisma.$disconnect()',
  };
}

/** In TypeScript, a module is imported by the name of the compiled file. */
function relativeImport(from: string, file: string, typescript: boolean): string {
  const relative = path.posix.relative(path.posix.dirname(from), file);
  const named = typescript ? relative.replace(/\.ts$/, '.js') : relative;
  return named.startsWith('.') ? named : `./${named}`;
}
