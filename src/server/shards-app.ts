// What several databases behind one port have in common: the list of them, and health and metrics of all. Everything
// else is under /shards/NAME/, with the tokens and the logins of that database.

import type { Hono } from 'hono';

import type { Database } from '../database/connection.js';
import { withDeadline } from '../database/connection.js';
import type { Replica } from '../database/replica.js';
import { errorText } from '../errors.js';
import { metricsText } from '../telemetry/metrics.js';
import type { Metrics } from '../telemetry/metrics.js';
import { gaugesOf, health, metricsType } from './app.js';
import type { HealthAnswer } from './app.js';
import { protectedApp } from './protection.js';
import { ShardsAccess } from './shards-access.js';

type Shard = {
  name: string;
  database: Database;
  replica?: Replica;
  metrics: Metrics;
  isRunning: () => boolean;
  refusal?: () => string | undefined;
};
/** Prometheus waits for ten seconds, and others for less. */
const answerMs = 3000;

type ShardHealth = HealthAnswer | { status: 'down'; error: string };

export function createShardsApp(shards: readonly Shard[], authentication: 'tokens' | 'none'): Hono {
  const app = protectedApp(authentication);
  const names = shards.map(({ name }) => name);
  const access = new ShardsAccess(shards);

  app.get('/', (context) =>
    /\btext\/html\b/.test(context.req.header('accept') ?? '')
      ? context.html(listPage(names), 200, {
          'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
        })
      : context.json({ shards: names }),
  );
  app.get('/healthz', async (context) => {
    const answers = await Promise.all(shards.map(healthOf));
    const { status, body } = combined(Object.fromEntries(answers));
    return context.json(body, status);
  });
  // one that is away must not keep the others from being served
  app.get('/readyz', (context) => {
    const running = shards.map(({ name, isRunning }) => [name, isRunning()] as const);
    const ready = running.some(([, runs]) => runs);
    const refused = shards.flatMap(({ name, refusal }) => {
      const text = refusal?.();
      return text === undefined ? [] : [[name, text] as const];
    });
    return context.json(
      {
        ready,
        shards: Object.fromEntries(running),
        ...(refused.length > 0 && { refused: Object.fromEntries(refused) }),
      },
      ready ? 200 : 503,
    );
  });
  app.get('/metrics', async (context) => {
    // a token of any of them: what is counted here names no tenant, and /healthz tells as much to everybody
    if (authentication === 'tokens') await access.check(context, 'read');
    const parts = await Promise.all(
      shards.map(async ({ metrics, ...databases }) => ({
        metrics,
        gauges: await soon('metrics', gaugesOf(databases)).catch(() => null),
      })),
    );
    return context.body(metricsText(parts), 200, { 'content-type': metricsType });
  });
  app.get('/shards/:name', (context) => {
    const name = context.req.param('name');
    // relative, so that it is right behind a proxy's prefix too
    return names.includes(name) ? context.redirect(`${name}/`) : context.notFound();
  });
  app.notFound((context) =>
    context.json(
      { error: `${context.req.path} is not here: see ${names.map(pathOf).join(', ')}` },
      404,
    ),
  );
  return app;
}

/** A database that does not answer must not hold up what the others say. */
async function soon<T>(what: string, answer: Promise<T>): Promise<T> {
  return withDeadline(what, answerMs, answer, () => undefined);
}

async function healthOf({ name, database }: Shard): Promise<[string, ShardHealth]> {
  try {
    return [name, await soon('health', health(database))];
  } catch (error) {
    return [name, { status: 'down', error: errorText(error) }];
  }
}

/** As long as one answers, another instance would find the same. */
function combined(shards: Record<string, ShardHealth>) {
  const entries = Object.entries(shards);
  const down = entries.filter(([, { status }]) => status === 'down').length;
  const reasons = entries.flatMap(([name, shard]) =>
    (shard.status === 'down' ? [`the database: ${shard.error}`] : shard.reasons).map(
      (reason) => `${name}: ${reason}`,
    ),
  );
  const isDown = down === entries.length;
  const status = isDown ? 'down' : reasons.length > 0 ? 'degraded' : 'ok';
  return { status: isDown ? (503 as const) : (200 as const), body: { status, reasons, shards } };
}

function pathOf(name: string): string {
  return `/shards/${name}/`;
}

/** Names of shards need no escaping. */
function listPage(names: readonly string[]): string {
  const links = names.map((name) => `<li><a href="./shards/${name}/">${name}</a></li>`);
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Waybill</title><h1>Waybill</h1><ul>${links.join('')}</ul></html>`;
}
