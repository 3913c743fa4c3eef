// HTTP application as one fetch function: health, metrics, the API, the drain, the page. Access to all routes of the
// API is checked in one place, before any of them runs (addRoute). /metrics and /drain check it too; health and the
// description of the API need no token.

import type { Context, Hono } from 'hono';

import type { Config } from '../config.js';
import { shown } from '../core/errors.js';
import type { Database } from '../database/connection.js';
import { features } from '../features/all.js';
import type { Replica } from '../features/replicas/replica.js';
import { readGauges, readHealth } from '../listing/reports.js';
import type { Gauges } from '../telemetry/gauges.js';
import type { DrainReport } from '../relay/drains.js';
import { asleepText, Metrics } from '../telemetry/metrics.js';
import { acceptedBefore, allow, allowTenant, authenticate } from './access.js';
import type { Access } from './access.js';
import { messageRoutes } from './api/messages.js';
import { operationRoutes } from './api/operations.js';
import { requestRoutes } from './api/requests.js';
import { tailRoutes } from './api/tail.js';
import { wakePath, wakeRoute } from './api/wake.js';
import type { SleepingPart } from './api/wake.js';
import type { Background } from './background.js';
import { answerOnce } from './idempotency.js';
import { describeApi } from './openapi.js';
import type { Page } from './page.js';
import {
  authenticatorOf,
  bodyOf,
  changesSomething,
  isInvalidValue,
  isOutOfRange,
  protectedApp,
} from './protection.js';
import { answerFrom, carriesPosition } from '../features/replicas/reads.js';
import type { Databases } from '../features/replicas/reads.js';
import { HttpProblem, readValues } from './route.js';
import type { Route } from './route.js';
import { sessionRoutes } from './session.js';
import { SharedAnswers, ResponseCache } from './response-cache.js';
import type { SingleSignOn } from './single-sign-on.js';

export type AppOptions = {
  database: Database;
  /** Answers requests that only read. */
  replica?: Replica;
  authentication: 'tokens' | 'none';
  /** The proxy that authenticates users, if any. */
  singleSignOn?: SingleSignOn;
  isReady: () => boolean;
  background: Background;
  /** The configuration, for routes of features that have options. */
  config?: Partial<Config>;
  page?: Page;
  /** Counters of the relay in this process. */
  metrics?: Metrics;
  /** The relay in this process, if it may sleep. */
  sleeping?: SleepingPart;
  /** Delivers due messages, for POST /drain. */
  drain?: () => Promise<DrainReport>;
  /** How long an answer stays in the response cache. Default 1,000. */
  sharedForMs?: number;
  /** The shard, if several share a host: it names the cookies. */
  shard?: string;
};

export const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

const featureRoutes = await Promise.all(
  features.flatMap(({ routes }) => (routes ? [routes()] : [])),
);

/** The page sends it with its periodic requests: they must not keep a database awake. */
export const refreshHeader = 'waybill-refresh';

export function apiRoutes(
  background: Background,
  config: Partial<Config> = {},
  sleeping?: SleepingPart,
): Route[] {
  return [
    ...messageRoutes(config),
    ...requestRoutes(background, config),
    ...operationRoutes,
    ...tailRoutes(),
    wakeRoute(sleeping),
    ...featureRoutes.flatMap((routes) =>
      typeof routes === 'function' ? routes(background, config) : routes,
    ),
  ];
}

export function createApp(options: AppOptions): Hono {
  const { database, replica, authentication, isReady, background, page, drain, shard } = options;
  const { sleeping } = options;
  const isAsleep = () => sleeping?.isAsleep() ?? false;
  const databases: Databases = {
    database,
    ...(replica && { replica }),
    ...(shard !== undefined && { shard }),
  };
  const metrics = options.metrics ?? new Metrics();
  const authenticator = authenticatorOf(options);
  const routes = apiRoutes(background, options.config, sleeping);
  const shared = new ResponseCache(options.sharedForMs ?? 1000);
  const app = protectedApp(authentication);

  app.use(async (context, next) => {
    await next();
    if (changesSomething(context)) shared.forget();
    // An operator's change can make messages due without notifying a relay. Also while awake: it may be falling asleep.
    if (changesSomething(context) && isChange(context)) sleeping?.wake();
  });

  app.use('/api/*', async (context, next) => {
    if (isAsleep() && context.req.header(refreshHeader) !== undefined)
      throw new HttpProblem(503, `the relay is asleep: reload the page, or POST ${wakePath}`);
    await next();
  });

  app.get('/healthz', async (context) => {
    if (isAsleep()) return context.json({ status: 'asleep', counts: {} });
    try {
      return context.json(await health(database, shared.of(null)));
    } catch {
      // the relay logs the reason
      return context.json({ status: 'down' }, 503);
    }
  });
  app.get('/readyz', (context) => context.json({ ready: isReady() }, isReady() ? 200 : 503));
  app.get('/metrics', async (context) => {
    // without the database no token can be checked, so this says no more than /healthz does
    if (isAsleep()) return context.body(asleepText(), 200, { 'content-type': metricsType });
    allow(await authenticate(context, authenticator), { scope: 'read' });
    const gauges = await answerFrom(context, databases, { method: 'GET' }, (found, source) =>
      shared.of(source).get('gauges', () => readGauges(found)),
    );
    const text = metrics.text({ ...gauges, ...(replica && { replica: replicaGauges(replica) }) });
    return context.body(text, 200, { 'content-type': metricsType });
  });
  app.get('/api/openapi.json', (context) => context.json(describeApi(routes)));
  app.route('/api/session', sessionRoutes(authenticator));
  // a request that wakes the relay must not wait for a database that is starting
  const identify = async (context: Context, { path }: Route): Promise<Access> => {
    const known =
      isAsleep() && path === wakePath ? acceptedBefore(context, authenticator) : undefined;
    const checked = authenticate(context, authenticator);
    if (known === undefined) return checked;
    // it is remembered again if the database accepts it; one that was revoked wakes no more
    checked.catch(() => undefined);
    return known;
  };
  for (const route of routes) addRoute(app, identify, databases, shared, route);
  if (drain !== undefined) {
    app.post('/drain', async (context) => {
      allow(await authenticate(context, authenticator), { scope: 'operate' });
      return context.json(await answerFrom(context, databases, { method: 'POST' }, () => drain()));
    });
  }
  app.all('/api/*', (context) => context.json({ error: `${context.req.path} is not here` }, 404));
  if (page !== undefined)
    app.get('*', (context) => page.answer(context.req.path, context.req.header('accept-encoding')));
  app.notFound((context) =>
    context.json({ error: `${context.req.path} is not here: see /healthz and /readyz` }, 404),
  );
  return app;
}

function isChange({ req, res }: Context): boolean {
  return res.ok && req.path.startsWith('/api/') && !req.path.startsWith('/api/session');
}

function addRoute(
  app: Hono,
  identify: (context: Context, route: Route) => Promise<Access>,
  databases: Databases,
  shared: ResponseCache,
  route: Route,
): void {
  const path = route.path.replaceAll(/\{(\w+)\}/g, ':$1');
  app.on(route.method, path, async (context) => {
    const access = await identify(context, route);
    allow(access, route);
    const values = readValues(route, {
      path: context.req.param(),
      query: queryOf(context),
      body: await bodyOf(context),
    });
    allowTenant(access, values);
    const answering = answerFrom(context, databases, route, (database, source) => {
      const allowed = access.tenantId === null ? database : database.asTenant(access.tenantId);
      return answerOnce(context, route, { database: allowed, access, values }, (parts) =>
        route.answer({
          ...parts,
          source,
          access,
          values,
          // a client that has just changed something must not get a cached answer
          shared: carriesPosition(context, databases) ? new SharedAnswers(0) : shared.of(source),
        }),
      );
    });
    const answer = await answering.catch((error: unknown) => {
      // all other values were checked before the database got them
      if ((isInvalidValue(error) || isOutOfRange(error)) && values['next'] !== undefined)
        throw new HttpProblem(
          400,
          `next is ${shown(values['next'])}: pass next from the previous page`,
          { cause: error },
        );
      throw error;
    });
    // progress of a job: the next requests must see what it has changed meanwhile
    if (route.on === 'primary') shared.forget();
    if (!(answer instanceof Response)) return context.json(answer as object);
    // a new response, so that it gets the headers set in the context
    return context.body(await answer.arrayBuffer(), 200, Object.fromEntries(answer.headers));
  });
}

/** The parameters of the query. One that is given twice is refused: one of the two would be ignored. */
function queryOf(context: Context): Record<string, string> {
  const given = Object.entries(context.req.queries());
  for (const [name, values] of given)
    if (values.length > 1)
      throw new HttpProblem(400, `${name} is given ${values.length} times: give it once`);
  return Object.fromEntries(given.map(([name, [value = '']]) => [name, value]));
}

/** The gauges of a shard's database, read from its replica if possible. */
export async function gaugesOf({ database, replica }: Databases): Promise<Gauges> {
  if (replica === undefined) return readGauges(database);
  const { answer } = await replica.read(readGauges);
  return { ...answer, replica: replicaGauges(replica) };
}

function replicaGauges({ status, fallbacks }: Replica): NonNullable<Gauges['replica']> {
  const { usable, lagMs } = status;
  return { usable, lagSeconds: lagMs === null ? null : lagMs / 1000, fallbacks };
}

/** Numbers without names, because this route needs no token. The alarms are in GET /api/health, which needs one. */
export type HealthAnswer = {
  status: 'ok' | 'degraded';
  counts: Record<string, number | null>;
};

export async function health(
  database: Database,
  shared = new SharedAnswers(0),
): Promise<HealthAnswer> {
  const metrics = await shared.get('health', () => readHealth(database));
  // always 200: another instance would find the same, and a restart of this one would not help
  return {
    status: metrics.every(({ alarm }) => alarm === null) ? 'ok' : 'degraded',
    counts: Object.fromEntries(metrics.map(({ metric, value }) => [metric, value])),
  };
}
