// The routes of the HTTP API, for tests that only inspect them. No server or database is started.

import type { Database } from '../../src/database/connection.js';
import { apiRoutes } from '../../src/server/app.js';
import { Background } from '../../src/server/background.js';
import type { Route } from '../../src/server/route.js';

export function describedRoutes(): Route[] {
  return apiRoutes(new Background({} as Database));
}
