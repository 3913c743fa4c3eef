// The routes of the API, only to be looked at: nothing behind them is ever started.

import type { Database } from '../../src/database/connection.js';
import { apiRoutes } from '../../src/server/app.js';
import { Jobs } from '../../src/server/jobs.js';
import { ReplayRuns } from '../../src/server/replay-runs.js';
import type { Route } from '../../src/server/route.js';

export function describedRoutes(): Route[] {
  const nothing = {} as Database;
  return apiRoutes(new Jobs(nothing), new ReplayRuns(nothing));
}
