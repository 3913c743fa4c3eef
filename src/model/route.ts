// A route says which topics go to which destination. Matching happens in the database, at enqueue.

import { ConfigurationError } from '../errors.js';
import { checkOptions, optional, refuse, text } from './options.js';

export type Route = {
  /** Exact (`user.registered`), everything below (`user.*`), or everything (`*`). */
  topic: string;
  /** The destination's name. */
  to: string;
  /** Only this namespace. Default: all. */
  namespace?: string;
  /** Only this tenant. Default: all. */
  tenantId?: string;
};

const topicPattern = /^(\*|[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*(\.\*)?)$/;

export const topicKind = text({
  pattern: topicPattern,
  meaning: "an exact topic, 'user.*' or '*'",
});

export function checkRoutes(routes: unknown, destinations: ReadonlySet<string>): Route[] {
  if (!Array.isArray(routes))
    refuse('routes', routes, "give a list such as [{ topic: 'user.*', to: 'crm' }]");
  return routes.map((route: object, index) => {
    const where = `routes[${index}]`;
    const checked = checkOptions(where, route, {
      topic: topicKind,
      to: text({ meaning: 'the name of a destination' }),
      namespace: optional(text({ meaning: 'a namespace' })),
      tenantId: optional(text({ meaning: 'a tenant id' })),
    });
    if (!destinations.has(checked.to)) {
      throw new ConfigurationError(
        `${where}.to is "${checked.to}", which is no destination: use ${[...destinations].join(', ')}`,
      );
    }
    const { topic, to, namespace, tenantId } = checked;
    return { topic, to, ...(namespace && { namespace }), ...(tenantId && { tenantId }) };
  });
}
