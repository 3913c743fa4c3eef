import { EntitySchema, MikroORM } from '@mikro-orm/postgresql';
import { createOutbox } from 'waybill/producer';

const User = new EntitySchema({
  name: 'users',
  properties: {
    id: { type: 'int', primary: true, autoincrement: true },
    email: { type: 'text' },
  },
});
const orm = await MikroORM.init({ clientUrl: process.env.DATABASE_URL, entities: [User] });
const outbox = createOutbox();

export function register(email) {
  return orm.em.fork().transactional(async (em) => {
    const user = em.create(User, { email });
    await em.flush();
    const payload = { userId: user.id, email };
    return outbox.enqueue(em, { topic: 'user.registered', payload });
  });
}

export const close = () => orm.close();
