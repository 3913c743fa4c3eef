// The routes of the API, only to be looked at: nothing behind them is ever started.

import type { Database } from '../../src/database/connection.js';
import { apiRoutes } from '../../src/server/app.js';
import { Background } from '../../src/server/background.js';
import type { Route } from '../../src/server/route.js';

export function describedRoutes(): Route[] {
  return apiRoutes(new Background({} as Database));
}
