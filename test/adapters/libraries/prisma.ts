import { PrismaPg } from '@prisma/adapter-pg';

import type { Prisma } from '../generated/prisma/client.ts';
import { library } from '../library.js';

export default library<Prisma.TransactionClient>(
  ['@prisma/client', '@prisma/adapter-pg'],
  async (url) => {
    const { PrismaClient } = await import('../generated/prisma/client.ts');
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
    return {
      outside: prisma,
      transaction: (work) => prisma.$transaction(work),
      nested: (tx, work) => tx.$transaction(work),
      insert: (tx, name) => tx.effects.create({ data: { name } }),
      close: () => prisma.$disconnect(),
    };
  },
);
