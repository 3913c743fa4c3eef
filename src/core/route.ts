// Route: a rule that sends topics to a destination. The database matches routes at enqueue.

import { ConfigurationError } from './errors.js';
import { checkOptions, list, optional, refuse, text } from './options.js';

export type Route = {
  /** Exact (`user.registered`), everything below (`user.*`), or everything (`*`). */
  topic: string;
  /** The name of the destination, or a list of names. */
  to: string | readonly string[];
  /** Only this namespace. Default: all. */
  namespace?: string;
  /** Only this tenant. Default: all. */
  tenantId?: string;
};

/** A route to one destination. */
export type SingleRoute = Omit<Route, 'to'> & { to: string };

/** Options that a feature adds to routes, each a text, and what else it refuses. */
export type RouteOptions = {
  kinds: Record<string, (where: string, value: unknown) => string | undefined>;
  /** Gets the routes as they were given, each as a list with a route for each of its destinations. */
  refuse: (routes: readonly (readonly SingleRoute[])[]) => void;
};

const topicPattern = /^(\*|[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*(\.\*)?)$/;

export const topicKind = text({
  pattern: topicPattern,
  meaning: "an exact topic, 'user.*' or '*'",
});

const mostDestinations = 100;

/** Splits routes to several destinations into one route for each. */
export function checkRoutes(
  routes: unknown,
  destinations: ReadonlySet<string>,
  added: RouteOptions = { kinds: {}, refuse: () => undefined },
): SingleRoute[] {
  if (!Array.isArray(routes))
    refuse('routes', routes, "give a list such as [{ topic: 'user.*', to: 'crm' }]");
  const checkedRoutes = routes.map((route: object, index): SingleRoute[] => {
    const where = `routes[${index}]`;
    const {
      topic,
      to: names,
      namespace,
      tenantId,
      ...others
    } = checkOptions(where, route, {
      topic: topicKind,
      to: destinationNames,
      namespace: optional(text({ meaning: 'a namespace' })),
      tenantId: optional(text({ meaning: 'a tenant id' })),
      ...added.kinds,
    });
    const options = Object.entries(others).filter(([, value]) => value !== undefined);
    for (const name of names) {
      if (!destinations.has(name))
        throw new ConfigurationError(
          `${where}.to is "${name}", which is no destination: use ${[...destinations].join(', ')}`,
        );
    }
    return names.map((to) => ({
      topic,
      to,
      ...(namespace && { namespace }),
      ...(tenantId && { tenantId }),
      ...Object.fromEntries(options),
    }));
  });
  added.refuse(checkedRoutes);
  return checkedRoutes.flat();
}

const destinationName = text({ meaning: 'the name of a destination' });
const nameList = list(destinationName, { min: 1, max: mostDestinations });

function destinationNames(name: string, value: unknown): readonly string[] {
  if (!Array.isArray(value)) return [destinationName(name, value)];
  const names = nameList(name, value);
  const twice = names.find((each, index) => names.indexOf(each) !== index);
  if (twice !== undefined) refuse(name, value, `it has ${twice} twice: leave one of them out`);
  return names;
}

/** Whether a topic is within the topic of a route, as the database matches them: `user.*` is all topics below `user`. */
export function isWithin(topic: string, routed: string): boolean {
  if (routed === '*' || routed === topic) return true;
  return routed.endsWith('.*') && topic.startsWith(routed.slice(0, -1));
}
