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
  /** Send only the share that operators set for this rollout, and leave the rest to the other system. Default: everything. */
  rollout?: string;
};

/** A route to one destination. */
export type SingleRoute = Omit<Route, 'to'> & { to: string };

const topicPattern = /^(\*|[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*(\.\*)?)$/;

export const topicKind = text({
  pattern: topicPattern,
  meaning: "an exact topic, 'user.*' or '*'",
});

/** At most 50 characters, because the rollout's shadow is a destination named after it. */
const rolloutKind = text({
  pattern: /^[A-Za-z0-9_][A-Za-z0-9_-]{0,49}$/,
  meaning: 'a name of letters, digits, _ and -, at most 50',
});

const mostDestinations = 100;

/** Splits routes to several destinations into one route for each. */
export function checkRoutes(routes: unknown, destinations: ReadonlySet<string>): SingleRoute[] {
  if (!Array.isArray(routes))
    refuse('routes', routes, "give a list such as [{ topic: 'user.*', to: 'crm' }]");
  const checkedRoutes = routes.map((route: object, index): SingleRoute[] => {
    const where = `routes[${index}]`;
    const checked = checkOptions(where, route, {
      topic: topicKind,
      to: destinationNames,
      namespace: optional(text({ meaning: 'a namespace' })),
      tenantId: optional(text({ meaning: 'a tenant id' })),
      rollout: optional(rolloutKind),
    });
    const { topic, to: names, namespace, tenantId, rollout } = checked;
    for (const name of names) {
      if (!destinations.has(name))
        throw new ConfigurationError(
          `${where}.to is "${name}", which is no destination: use ${[...destinations].join(', ')}`,
        );
    }
    if (rollout !== undefined && names.length > 1)
      refuse(
        `${where}.rollout`,
        rollout,
        `a rollout leads to one destination, and this route to ${names.join(' and ')}: write a route for each, and give one of them the rollout`,
      );
    return names.map((to) => ({
      topic,
      to,
      ...(namespace && { namespace }),
      ...(tenantId && { tenantId }),
      ...(rollout && { rollout }),
    }));
  });
  refuseTwoRollouts(checkedRoutes);
  const all = checkedRoutes.flat();
  refuseSplitRollouts(all);
  return all;
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

/** The database has one route for a topic, namespace, tenant and destination, so one of the two would be dropped. */
function refuseTwoRollouts(routes: readonly (readonly SingleRoute[])[]): void {
  const known = new Map<string, { index: number; rollout: string | undefined }>();
  for (const [index, route] of routes.entries()) {
    for (const { topic, to, namespace, tenantId, rollout } of route) {
      const key = JSON.stringify([topic, to, namespace ?? null, tenantId ?? null]);
      const first = known.get(key) ?? { index, rollout };
      if (first.rollout !== rollout)
        throw new ConfigurationError(
          `routes[${index}] leads "${topic}" to ${to} ${shownRollout(rollout)}, and routes[${first.index}] ${shownRollout(first.rollout)}: leave one of them out`,
        );
      known.set(key, first);
    }
  }
}

function shownRollout(rollout: string | undefined): string {
  return rollout === undefined ? 'without a rollout' : `with the rollout ${rollout}`;
}

/** A rollout has one destination, because the other system is compared with what that destination would send. */
function refuseSplitRollouts(routes: readonly SingleRoute[]): void {
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
