// The HTTP side as one fetch function: health, the API, the drain, the page. What a request may do is decided here,
// once for all routes, before any of them runs.

import { Hono } from 'hono';
import type { Context } from 'hono';

import type { Database } from '../database/connection.js';
import { isTransient } from '../database/connection.js';
import { readGauges, readHealth } from '../database/reports.js';
import { WaybillError, errorText } from '../errors.js';
import type { DrainReport } from '../relay/drains.js';
import { Metrics } from '../telemetry/metrics.js';
import { Attempts, allow, checkHost, checkOrigin, findOut, sessionCookie } from './access.js';
import type { Guard } from './access.js';
import { deadLetterRoutes } from './api/dead-letters.js';
import { messageRoutes } from './api/messages.js';
import { operationRoutes } from './api/operations.js';
import { rolloutRoutes } from './api/rollouts.js';
import type { Jobs } from './jobs.js';
import { describeApi } from './openapi.js';
import type { Page } from './page.js';
import { HttpProblem, readValues } from './route.js';
import type { Route } from './route.js';
import { sessionRoutes } from './session.js';

export type AppOptions = {
  database: Database;
  authentication: 'tokens' | 'none';
  isReady: () => boolean;
  jobs: Jobs;
  page?: Page;
  /** Counters of the relay in this process. */
  metrics?: Metrics;
  /** Delivers what is due, for POST /drain. */
  drain?: () => Promise<DrainReport>;
  /** One of several that share a host, whose logins must not take each other's place. */
  shard?: string;
};

const largestBodyBytes = 1024 * 1024;
export const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

export function apiRoutes(jobs: Jobs): Route[] {
  return [...messageRoutes, ...deadLetterRoutes(jobs), ...operationRoutes, ...rolloutRoutes];
}

export function createApp(options: AppOptions): Hono {
  const { database, authentication, isReady, jobs, page, drain } = options;
  const metrics = options.metrics ?? new Metrics();
  const guard = guardOf(options);
  const routes = apiRoutes(jobs);
  const app = protectedApp(authentication);

  app.get('/healthz', async (context) => {
    try {
      return context.json(await health(database));
    } catch (error) {
      return context.json({ status: 'down', error: errorText(error) }, 503);
    }
  });
  app.get('/readyz', (context) => context.json({ ready: isReady() }, isReady() ? 200 : 503));
  app.get('/metrics', async (context) => {
    allow(await findOut(context, guard), 'read', false);
    const text = metrics.text(await readGauges(database));
    return context.body(text, 200, { 'content-type': metricsType });
  });
  app.get('/api/openapi.json', (context) => context.json(describeApi(routes)));
  app.route('/api/session', sessionRoutes(guard));
  for (const route of routes) addRoute(app, guard, route);
  if (drain !== undefined) {
    app.post('/drain', async (context) => {
      allow(await findOut(context, guard), 'operate', false);
      return context.json(await drain());
    });
  }
  app.all('/api/*', (context) => context.json({ error: `${context.req.path} is not here` }, 404));
  if (page !== undefined) app.get('*', (context) => page.answer(context.req.path));
  app.notFound((context) =>
    context.json({ error: `${context.req.path} is not here: see /healthz and /readyz` }, 404),
  );
  return app;
}

export function guardOf({
  database,
  authentication,
  shard,
}: Pick<AppOptions, 'database' | 'authentication' | 'shard'>): Guard {
  const cookie = shard === undefined ? sessionCookie : `${sessionCookie}_${shard}`;
  return { database, authentication, attempts: new Attempts(), cookie };
}

/** What holds for every request, before any route is looked at. */
export function protectedApp(authentication: AppOptions['authentication']): Hono {
  const app = new Hono();
  app.use(async (context, next) => {
    checkHost(context, { authentication });
    await next();
    context.header('x-content-type-options', 'nosniff');
    context.header('referrer-policy', 'no-referrer');
    if (!context.res.headers.has('cache-control')) context.header('cache-control', 'no-store');
  });
  app.use(async (context, next) => {
    if (!['GET', 'HEAD', 'OPTIONS'].includes(context.req.method)) checkChange(context);
    await next();
  });
  app.onError((error, context) => {
    const { status, message } = problemOf(error);
    return context.json({ error: message }, status);
  });
  return app;
}

function addRoute(app: Hono, guard: Guard, route: Route): void {
  const path = route.path.replaceAll(/\{(\w+)\}/g, ':$1');
  app.on(route.method, path, async (context) => {
    const access = await findOut(context, guard);
    allow(access, route.scope, route.forTenants ?? false);
    const values = readValues(route, {
      path: context.req.param(),
      query: context.req.query(),
      body: await bodyOf(context),
    });
    const answer = await route.answer({ database: guard.database, access, values });
    return answer instanceof Response ? answer : context.json(answer as object);
  });
}

function checkChange(context: Context): void {
  checkOrigin(context);
  const length = Number(context.req.header('content-length') ?? 0);
  if (length > largestBodyBytes)
    throw new HttpProblem(413, `the body has ${length} bytes: give at most ${largestBodyBytes}`);
  const type = context.req.header('content-type');
  if ((length > 0 || type !== undefined) && !/^application\/json\b/i.test(type ?? ''))
    throw new HttpProblem(415, `the body is ${type ?? 'of no type'}: send application/json`);
}

async function bodyOf(context: Context): Promise<Record<string, unknown>> {
  if (context.req.method === 'GET') return {};
  const text = await context.req.text();
  if (text === '') return {};
  if (text.length > largestBodyBytes)
    throw new HttpProblem(413, `the body is too long: give at most ${largestBodyBytes} bytes`);
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch (error) {
    throw new HttpProblem(400, `the body is not JSON: ${errorText(error)}`);
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new HttpProblem(400, 'the body is not an object: send {…}');
  return body as Record<string, unknown>;
}

export type HealthAnswer = {
  status: 'ok' | 'degraded';
  reasons: string[];
  counts: Record<string, number | null>;
};

export async function health(database: Database): Promise<HealthAnswer> {
  const metrics = await readHealth(database);
  const reasons = metrics.map(({ alarm }) => alarm).filter((alarm) => alarm !== null);
  // a success in any case: another instance would find the same, and restarting this one helps nobody
  return {
    status: reasons.length === 0 ? 'ok' : 'degraded',
    reasons,
    counts: Object.fromEntries(metrics.map(({ metric, value }) => [metric, value])),
  };
}

function problemOf(error: Error): { status: HttpProblem['status'] | 500; message: string } {
  if (error instanceof HttpProblem) return { status: error.status, message: error.message };
  if (isTransient(error)) return { status: 503, message: `the database: ${errorText(error)}` };
  const { code } = error as { code?: unknown };
  if (code === 'P0002') return { status: 404, message: error.message };
  // what was asked for cannot be: the database says what is wrong with it
  if (error instanceof WaybillError || code === '22023' || code === '22004')
    return { status: 400, message: error.message };
  return { status: 500, message: errorText(error) };
}
