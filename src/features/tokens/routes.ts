// HTTP route of tenant tokens: makes one for a page of a customer.

import { createTenantTokens } from './tenant-tokens.js';
import type { NewTenantToken } from './tenant-tokens.js';
import { actorOf } from '../../server/access.js';
import { text, wholeNumber, word } from '../../server/route.js';
import type { Route } from '../../server/route.js';

export const tokenRoutes: readonly Route[] = [
  {
    method: 'POST',
    path: '/api/tenant-tokens',
    scope: 'operate',
    takesKey: true,
    summary:
      'Makes a tenant token: a short-lived token that opens `/api/endpoints` for one tenant and nothing else. It is never shown again.',
    returns: '`token`, its `name`, and when it ends (`expiresAt`)',
    parameters: {
      tenantId: text({ in: 'body', required: true, description: 'the tenant' }, 255),
      scope: word(
        {
          in: 'body',
          description:
            '`operate` may change endpoints, `read` may only look; `operate` if not given',
        },
        ['operate', 'read'],
      ),
      lifetimeMs: wholeNumber(
        { in: 'body', description: 'how many milliseconds it is valid; 3,600,000 if not given' },
        { min: 60_000, max: 86_400_000 },
      ),
    },
    async answer(request) {
      const { database, values } = request;
      const client = {
        query: async (sql: string, given: unknown[]) => ({
          rows: await database.query('add tenant token', sql, given),
        }),
      };
      const tokens = createTenantTokens({
        schema: database.options.schema,
        actor: actorOf(request),
      });
      return tokens.add(client, values as NewTenantToken);
    },
  },
];
