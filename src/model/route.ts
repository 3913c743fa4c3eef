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
  /** Send only the share that operators set for this name, and leave the rest to the system that sent it before. Default: everything. */
  rollout?: string;
};

const topicPattern = /^(\*|[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*(\.\*)?)$/;

export const topicKind = text({
  pattern: topicPattern,
  meaning: "an exact topic, 'user.*' or '*'",
});

/** Its shadow is a destination, called after it. */
const rolloutKind = text({
  pattern: /^[A-Za-z0-9_][A-Za-z0-9_-]{0,49}$/,
  meaning: 'a name of letters, digits, _ and -, at most 50',
});

export function checkRoutes(routes: unknown, destinations: ReadonlySet<string>): Route[] {
  if (!Array.isArray(routes))
    refuse('routes', routes, "give a list such as [{ topic: 'user.*', to: 'crm' }]");
  const checkedRoutes = routes.map((route: object, index): Route => {
    const where = `routes[${index}]`;
    const checked = checkOptions(where, route, {
      topic: topicKind,
      to: text({ meaning: 'the name of a destination' }),
      namespace: optional(text({ meaning: 'a namespace' })),
      tenantId: optional(text({ meaning: 'a tenant id' })),
      rollout: optional(rolloutKind),
    });
    if (!destinations.has(checked.to)) {
      throw new ConfigurationError(
        `${where}.to is "${checked.to}", which is no destination: use ${[...destinations].join(', ')}`,
      );
    }
    const { topic, to, namespace, tenantId, rollout } = checked;
    return {
      topic,
      to,
      ...(namespace && { namespace }),
      ...(tenantId && { tenantId }),
      ...(rollout && { rollout }),
    };
  });
  refuseSplitRollouts(checkedRoutes);
  return checkedRoutes;
}

/** What is compared with another system is what one destination would send. */
function refuseSplitRollouts(routes: readonly Route[]): void {
  const places = new Map<string, string>();
  for (const [index, { rollout, to }] of routes.entries()) {
    if (rollout === undefined) continue;
    const first = places.get(rollout) ?? to;
    if (first !== to)
      refuse(
        `routes[${index}].rollout`,
        rollout,
        `it leads to ${first} already: give the routes to ${to} a rollout of their own`,
      );
    places.set(rollout, to);
  }
}
