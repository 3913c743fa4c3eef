// The metrics of a running relay: valid text for Prometheus' own checker, with every metric that the rules and the
// dashboard name. The relay is the real program, with its port, its token and its log.

import { describe, expect, it } from 'vitest';

import { metricCatalogue } from '../../src/telemetry/metric-catalogue.js';
import { cliOn, environmentOf, startCli, writeConfig } from '../support/cli.js';
import { metricsIn, readDashboard, readRules } from '../support/monitoring.js';
import { testDatabase } from '../support/postgres.js';
import { findPromtool, promtool } from '../support/promtool.js';
import { waitLimitMs, send } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const program = findPromtool() ?? '';

/** The /metrics of a relay that has delivered, failed and made dead letters. */
async function scrape(): Promise<string> {
  const config = writeConfig(`{
    destinations: {
      shop: handler(({ topic }) => (topic === 'shop.bad' ? retry({ code: 'no' }) : undefined), { retry: { delaysMs: [1] } }),
    },
    routes: [{ topic: 'shop.*', to: 'shop' }],
    server: { port: 0 },
  }`);
  const token = (await cliOn(db, ['tokens', 'add', `prometheus-${Date.now()}`])).stdout.trim();
  const child = startCli(['start', '--config', config], { environment: environmentOf(db) });
  await child.says('"msg":"serving"');
  const [, url = ''] = /"url":"([^"]+)","msg":"serving"/.exec(child.stderr) ?? [];
  const topics = ['shop.good', 'shop.good', 'shop.bad'];
  await send(
    db,
    topics.map((topic) => ({ topic })),
  );
  const metrics = async () => {
    const headers = { authorization: `Bearer ${token}` };
    return (await fetch(`${url}/metrics`, { headers })).text();
  };
  const endings = ['dispatched"} 2', 'failed"} 1'];
  const done = async () => {
    const text = await metrics();
    const has = (ending: string) =>
      text.includes(`outbox_attempts_total{destination="shop",state="${ending}\n`);
    // gauges are queried once a second, and may be older
    const isFresh =
      /^outbox_average_delivery_seconds /m.test(text) &&
      // relays add their counts every few seconds
      text.includes('outbox_delivery_rate{destination="shop"} 0.66');
    return endings.every(has) && isFresh && text;
  };
  const text = await waitFor(done, { what: 'all endings', timeoutMs: waitLimitMs });
  child.process.kill('SIGTERM');
  await child.ended();
  return text;
}

/** The names that have a value. */
function served(text: string): string[] {
  const names = text.split('\n').map((line) => /^outbox_\w+/.exec(line)?.[0]);
  return [...new Set(names.filter((name) => name !== undefined))];
}

describe('P14 /metrics of a running relay', () => {
  it('P14 has every metric of the catalogue, and every one that the rules and the dashboard name', async () => {
    const names = served(await scrape());
    const catalogue = Object.entries(metricCatalogue).flatMap(([name, { type }]) =>
      type === 'histogram' ? ['_bucket', '_sum', '_count'].map((end) => name + end) : [name],
    );
    // this one has no replica; test/database/replica.test.ts reads the metrics of one that has
    const ofReplicas = catalogue.filter((name) => name.startsWith('outbox_replica_'));
    expect([...names, ...ofReplicas].toSorted()).toEqual(catalogue.toSorted());
    const { panels, templating } = readDashboard();
    const expressions = [
      ...readRules().map(({ expr }) => expr),
      ...panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
      ...templating.list.map(({ query }) => (typeof query === 'string' ? '' : query.query)),
    ];
    const named = new Set(expressions.flatMap(metricsIn));
    expect(named.size).toBeGreaterThan(12);
    expect([...named].filter((name) => ![...names, ...ofReplicas].includes(name))).toEqual([]);
  });

  it.skipIf(program === '')('P14 is valid for promtool', async () => {
    const text = await scrape();
    expect(promtool(program, ['check', 'metrics'], text)).toEqual({ ok: true, words: '' });
    const bad = text.replaceAll('outbox_attempts_total', 'outbox_attempts');
    expect(promtool(program, ['check', 'metrics'], bad)).toMatchObject({ ok: false });
  });
});
