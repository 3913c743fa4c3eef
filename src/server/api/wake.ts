// HTTP route that wakes a relay which is asleep.

import type { Route } from '../route.js';

export const wakePath = '/api/wake';

/** The relay of this process, if it may sleep. */
export type SleepingPart = {
  /** It has no connection, and asks the database nothing. */
  readonly isAsleep: () => boolean;
  readonly wake: () => void;
};

export function wakeRoute(sleeping?: SleepingPart): Route {
  return {
    method: 'POST',
    path: wakePath,
    scope: 'operate',
    summary:
      'Wakes the relay of this process if it is asleep (`relay.sleep`); otherwise it looks for work.',
    returns: '`asleep`: whether it was asleep. The answer does not wait for the database',
    parameters: {},
    answer: () => {
      const asleep = sleeping?.isAsleep() ?? false;
      sleeping?.wake();
      return Promise.resolve({ asleep });
    },
  };
}
