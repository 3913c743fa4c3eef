import { EntitySchema, MikroORM } from '@mikro-orm/postgresql';
import type { EntityManager } from '@mikro-orm/postgresql';

import { library } from '../library.js';

const effects = new EntitySchema<{ name: string }>({
  name: 'effects',
  properties: { name: { type: 'text', primary: true } },
});

export default library<EntityManager>(['@mikro-orm/postgresql'], async (url) => {
  const orm = await MikroORM.init({ clientUrl: url, entities: [effects], connect: false });
  return {
    outside: orm.em.fork(),
    transaction: (work) => orm.em.fork().transactional(work),
    nested: (em, work) => em.transactional(work),
    async insert(em, name) {
      em.persist(em.create(effects, { name }));
      await em.flush();
    },
    close: () => orm.close(),
  };
});
