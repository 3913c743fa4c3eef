// The HTTP side as one fetch function: health, the API, the drain, the page. What a request may do is decided once for
// all routes, before any of them runs.

import type { Hono } from 'hono';

import type { Database } from '../database/connection.js';
import type { Replica } from '../database/replica.js';
import { readGauges } from '../database/reports.js';
import { readHealthAndAlerts } from '../database/statistics.js';
import { errorText } from '../errors.js';
import type { Gauges } from '../model/gauges.js';
import type { DrainReport } from '../relay/drains.js';
import { Metrics } from '../telemetry/metrics.js';
import { allow, findOut } from './access.js';
import type { Guard } from './access.js';
import { deadLetterJobRoutes } from './api/dead-letter-jobs.js';
import { deadLetterRoutes } from './api/dead-letters.js';
import { messageRoutes } from './api/messages.js';
import { operationRoutes } from './api/operations.js';
import { replayRoutes } from './api/replays.js';
import { rolloutRoutes } from './api/rollouts.js';
import type { Background } from './background.js';
import { describeApi } from './openapi.js';
import type { Page } from './page.js';
import { bodyOf, changesSomething, guardOf, protectedApp } from './protection.js';
import { answerFrom, carriesPosition } from './reading.js';
import type { Databases } from './reading.js';
import { readValues } from './route.js';
import type { Route } from './route.js';
import { sessionRoutes } from './session.js';
import { Shared, SharedAnswers } from './shared.js';

export type AppOptions = {
  database: Database;
  /** Answers what only reads. */
  replica?: Replica;
  authentication: 'tokens' | 'none';
  isReady: () => boolean;
  background: Background;
  page?: Page;
  /** Counters of the relay in this process. */
  metrics?: Metrics;
  /** Delivers what is due, for POST /drain. */
  drain?: () => Promise<DrainReport>;
  /** For how long an answer that many ask for is given again. Default 1,000. */
  sharedForMs?: number;
  /** One of several that share a host, whose logins must not take each other's place. */
  shard?: string;
};

export const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

export function apiRoutes(background: Background): Route[] {
  return [
    ...messageRoutes,
    ...deadLetterRoutes,
    ...deadLetterJobRoutes(background),
    ...replayRoutes(background.replays),
    ...operationRoutes,
    ...rolloutRoutes,
  ];
}

export function createApp(options: AppOptions): Hono {
  const { database, replica, authentication, isReady, background, page, drain, shard } = options;
  const databases: Databases = {
    database,
    ...(replica && { replica }),
    ...(shard !== undefined && { shard }),
  };
  const metrics = options.metrics ?? new Metrics();
  const guard = guardOf(options);
  const routes = apiRoutes(background);
  const shared = new SharedAnswers(options.sharedForMs ?? 1000);
  const app = protectedApp(authentication);

  app.use(async (context, next) => {
    await next();
    if (changesSomething(context)) shared.forget();
  });

  app.get('/healthz', async (context) => {
    try {
      return context.json(await health(database, shared.of(null)));
    } catch (error) {
      return context.json({ status: 'down', error: errorText(error) }, 503);
    }
  });
  app.get('/readyz', (context) => context.json({ ready: isReady() }, isReady() ? 200 : 503));
  app.get('/metrics', async (context) => {
    allow(await findOut(context, guard), 'read', false);
    const gauges = await answerFrom(context, databases, { method: 'GET' }, (found, source) =>
      shared.of(source).get('gauges', () => readGauges(found)),
    );
    const text = metrics.text({ ...gauges, ...(replica && { replica: replicaGauges(replica) }) });
    return context.body(text, 200, { 'content-type': metricsType });
  });
  app.get('/api/openapi.json', (context) => context.json(describeApi(routes)));
  app.route('/api/session', sessionRoutes(guard));
  for (const route of routes) addRoute(app, guard, databases, shared, route);
  if (drain !== undefined) {
    app.post('/drain', async (context) => {
      allow(await findOut(context, guard), 'operate', false);
      return context.json(await answerFrom(context, databases, { method: 'POST' }, () => drain()));
    });
  }
  app.all('/api/*', (context) => context.json({ error: `${context.req.path} is not here` }, 404));
  if (page !== undefined) app.get('*', (context) => page.answer(context.req.path));
  app.notFound((context) =>
    context.json({ error: `${context.req.path} is not here: see /healthz and /readyz` }, 404),
  );
  return app;
}

function addRoute(
  app: Hono,
  guard: Guard,
  databases: Databases,
  shared: SharedAnswers,
  route: Route,
): void {
  const path = route.path.replaceAll(/\{(\w+)\}/g, ':$1');
  app.on(route.method, path, async (context) => {
    const access = await findOut(context, guard);
    allow(access, route.scope, route.forTenants ?? false);
    const values = readValues(route, {
      path: context.req.param(),
      query: context.req.query(),
      body: await bodyOf(context),
    });
    const answer = await answerFrom(context, databases, route, (database, source) =>
      route.answer({
        database,
        source,
        access,
        values,
        // whoever must see a change gets no answer of before
        shared: carriesPosition(context, databases) ? new Shared(0) : shared.of(source),
      }),
    );
    // how a job goes: what it has changed meanwhile shall be seen
    if (route.on === 'primary') shared.forget();
    if (!(answer instanceof Response)) return context.json(answer as object);
    // in this way it gets the headers that were set meanwhile
    return context.body(await answer.arrayBuffer(), 200, Object.fromEntries(answer.headers));
  });
}

/** How the database of a shard stands; from its replica, if that can be asked. */
export async function gaugesOf({ database, replica }: Databases): Promise<Gauges> {
  if (replica === undefined) return readGauges(database);
  const { answer } = await replica.read(readGauges);
  return { ...answer, replica: replicaGauges(replica) };
}

function replicaGauges({ status, fallbacks }: Replica): NonNullable<Gauges['replica']> {
  const { usable, lagMs } = status;
  return { usable, lagSeconds: lagMs === null ? null : lagMs / 1000, fallbacks };
}

export type HealthAnswer = {
  status: 'ok' | 'degraded';
  reasons: string[];
  counts: Record<string, number | null>;
};

export async function health(database: Database, shared = new Shared(0)): Promise<HealthAnswer> {
  const { health: metrics } = await shared.get('health', () => readHealthAndAlerts(database));
  const reasons = metrics.map(({ alarm }) => alarm).filter((alarm) => alarm !== null);
  // a success in any case: another instance would find the same, and restarting this one helps nobody
  return {
    status: reasons.length === 0 ? 'ok' : 'degraded',
    reasons,
    counts: Object.fromEntries(metrics.map(({ metric, value }) => [metric, value])),
  };
}
