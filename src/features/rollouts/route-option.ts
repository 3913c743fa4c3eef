// The option `rollout` of a route: which routes a rollout may split.

import { ConfigurationError } from '../../core/errors.js';
import { optional, refuse, text } from '../../core/options.js';
import type { RouteOptions, SingleRoute as CoreRoute } from '../../core/route.js';

export type RolloutRoute = {
  /** Send only the share that operators set for this rollout, and leave the rest to the other system. Default: everything. */
  rollout?: string;
};

type SingleRoute = CoreRoute & RolloutRoute;

export const rolloutRoutes: RouteOptions = {
  kinds: {
    /** At most 50 characters, because the rollout's shadow is a destination named after it. */
    rollout: optional(
      text({
        pattern: /^[A-Za-z0-9_][A-Za-z0-9_-]{0,49}$/,
        meaning: 'a name of letters, digits, _ and -, at most 50',
      }),
    ),
  },
  refuse(routes) {
    refuseSeveralDestinations(routes);
    refuseTwoRollouts(routes);
    refuseTwoDestinations(routes.flat());
  },
};

type Given = readonly (readonly SingleRoute[])[];

function refuseSeveralDestinations(routes: Given): void {
  for (const [index, route] of routes.entries()) {
    const rollout = route[0]?.rollout;
    if (rollout !== undefined && route.length > 1)
      refuse(
        `routes[${index}].rollout`,
        rollout,
        `a rollout leads to one destination, and this route to ${route.map(({ to }) => to).join(' and ')}: write a route for each, and give one of them the rollout`,
      );
  }
}

/** The database has one route for a topic, namespace, tenant and destination, so one of the two would be dropped. */
function refuseTwoRollouts(routes: Given): void {
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
function refuseTwoDestinations(routes: readonly SingleRoute[]): void {
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
