import { DataSource, EntitySchema } from 'typeorm';
import { createOutbox } from 'waybill/producer';

const User = new EntitySchema({
  name: 'users',
  columns: { id: { type: 'int', primary: true, generated: true }, email: { type: 'text' } },
});
const dataSource = new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: [User],
});
await dataSource.initialize();
const outbox = createOutbox();

export function register(email) {
  return dataSource.transaction(async (manager) => {
    const user = await manager.save(User, { email });
    const payload = { userId: user.id, email };
    return outbox.enqueue(manager, { topic: 'user.registered', payload });
  });
}

export const close = () => dataSource.destroy();
