// Prisma's client is generated code. It is made here when the tests begin, into a folder that is not kept, which
// takes no database and, with a schema engine that does nothing, no download.

import { execFileSync } from 'node:child_process';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { PrismaPg } from '@prisma/adapter-pg';

import type { Prisma, PrismaClient } from '../generated/client.ts';
import { library } from '../library.js';

const folder = fileURLToPath(new URL('..', import.meta.url));
type Generated = { PrismaClient: new (options: { adapter: PrismaPg }) => PrismaClient };

export function generate(): void {
  execFileSync('node_modules/.bin/prisma', ['generate', '--schema', 'schema.prisma'], {
    cwd: folder,
    env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: '/bin/true', CHECKPOINT_DISABLE: '1' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

export default library<Prisma.TransactionClient>(
  ['@prisma/client', '@prisma/adapter-pg'],
  async (url) => {
    const generated = pathToFileURL(`${folder}generated/client.ts`).href;
    const { PrismaClient } = (await import(generated)) as Generated;
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
    return {
      outside: prisma,
      transaction: (work) => prisma.$transaction(work),
      nested: (tx, work) => tx.$transaction(work),
      insert: async (tx, name) => tx.effects.create({ data: { name } }),
      close: () => prisma.$disconnect(),
    };
  },
);
