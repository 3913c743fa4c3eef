import { PrismaPg } from '@prisma/adapter-pg';
import { createOutbox } from 'waybill/producer';

import { PrismaClient } from './generated/client.ts';

const adapter = new PrismaPg({ connectionString: process.env.DATABASE_URL });
const prisma = new PrismaClient({ adapter });
const outbox = createOutbox();

export function register(email) {
  return prisma.$transaction(async (tx) => {
    const user = await tx.users.create({ data: { email } });
    const payload = { userId: user.id, email };
    return outbox.enqueue(tx, { topic: 'user.registered', payload });
  });
}

export const close = () => prisma.$disconnect();
