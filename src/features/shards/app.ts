// HTTP server for several shards behind one port: lists the shards, and reports health and metrics of all. Everything
// else is under /shards/NAME/, with the tokens and logins of that shard. Without a token, clients get counts but no
// names.

import type { Context, Hono } from 'hono';

import type { Database } from '../../database/connection.js';
import { withDeadline } from '../../database/deadline.js';
import type { Replica } from '../replicas/replica.js';
import { metricsText } from '../../telemetry/metrics.js';
import type { Metrics } from '../../telemetry/metrics.js';
import { gaugesOf, health, metricsType } from '../../server/app.js';
import type { AppOptions, HealthAnswer } from '../../server/app.js';
import { protectedApp } from '../../server/protection.js';
import { ShardsAccess } from './access.js';

type Shard = {
  name: string;
  database: Database;
  replica?: Replica;
  metrics: Metrics;
  isRunning: () => boolean;
  refusal?: () => string | undefined;
};
type ShardStatus = HealthAnswer['status'] | 'down';

/** Prometheus waits for ten seconds, other probes for less. */
const answerMs = 3000;

export function createShardsApp(
  shards: readonly Shard[],
  { authentication, singleSignOn }: Pick<AppOptions, 'authentication' | 'singleSignOn'>,
): Hono {
  const app = protectedApp(authentication);
  const names = shards.map(({ name }) => name);
  const access = new ShardsAccess(shards, singleSignOn);

  const mayRead = async (context: Context): Promise<boolean> =>
    authentication === 'none' || access.mayRead(context);

  app.get('/', async (context) => {
    const shown = (await mayRead(context)) ? names : undefined;
    return /\btext\/html\b/.test(context.req.header('accept') ?? '')
      ? context.html(listPage(shown, names.length), 200, {
          'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
        })
      : context.json({ count: names.length, ...(shown && { shards: shown }) });
  });
  app.get('/healthz', async (context) => {
    const answers = await Promise.all(shards.map(statusOf));
    const count = (status: ShardStatus): number => answers.filter((each) => each === status).length;
    const counts = { ok: count('ok'), degraded: count('degraded'), down: count('down') };
    // 200 while one shard answers: another instance would see the same
    const isDown = counts.down === shards.length;
    const status = isDown ? 'down' : counts.ok === shards.length ? 'ok' : 'degraded';
    return context.json({ status, shards: counts }, isDown ? 503 : 200);
  });
  // an unavailable shard must not take the others out of service
  app.get('/readyz', async (context) => {
    const running = shards.map(({ name, isRunning }) => [name, isRunning()] as const);
    const refused = shards.flatMap(({ name, refusal }) => {
      const text = refusal?.();
      return text === undefined ? [] : [[name, text] as const];
    });
    const count = running.filter(([, runs]) => runs).length;
    const waiting = shards.length - count - refused.length;
    const ready = count > 0;
    return context.json(
      {
        ready,
        shards: { running: count, refused: refused.length, waiting },
        ...((await mayRead(context)) && {
          names: Object.fromEntries(running),
          refused: Object.fromEntries(refused),
        }),
      },
      ready ? 200 : 503,
    );
  });
  app.get('/metrics', async (context) => {
    // a token of any shard is enough: these counts name no tenant
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
    // relative, so that it also works behind the prefix of a proxy
    return names.includes(name) ? context.redirect(`${name}/`) : context.notFound();
  });
  app.notFound((context) => {
    // unauthenticated clients are not told the names
    const paths = authentication === 'none' ? names.map(pathOf) : [pathOf('NAME')];
    const known = ['/healthz', '/readyz', ...paths].join(', ');
    return context.json({ error: `${context.req.path} is not here: see ${known}` }, 404);
  });
  return app;
}

/** Limits the time for one shard's answer, so that it does not delay the others. */
async function soon<T>(what: string, answer: Promise<T>): Promise<T> {
  return withDeadline(what, answerMs, answer, () => undefined);
}

async function statusOf({ database }: Shard): Promise<ShardStatus> {
  try {
    return (await soon('health', health(database))).status;
  } catch {
    return 'down';
  }
}

function pathOf(name: string): string {
  return `/shards/${name}/`;
}

/** Names of shards need no escaping. Without names, the page says how to see them. */
function listPage(names: readonly string[] | undefined, count: number): string {
  const links = names?.map((name) => `<li><a href="./shards/${name}/">${name}</a></li>`);
  const content =
    links === undefined
      ? `<p>${count} shards. Log in to one of them, at <code>shards/NAME/</code>, to see their names here.</p>`
      : `<ul>${links.join('')}</ul>`;
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Waybill</title><h1>Waybill</h1>${content}</html>`;
}
