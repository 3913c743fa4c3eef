// A real Prometheus: it scrapes a relay's port with a token from a file, as deploy/prometheus/prometheus.yml says, and
// evaluates the rules. The test does not wait for the durations of alerts: it checks that the alert is pending.

import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { expect, it, onTestFinished } from 'vitest';

import { ServiceProcess } from '../contract/services/process.js';
import { freePort } from '../support/free-port.js';
import { readRules } from '../support/monitoring.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { findPromtool } from '../support/promtool.js';
import { serveDatabase } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
/** Prometheus and promtool come in one package. */
const program = (findPromtool() ?? '').replace(/promtool$/, 'prometheus');
const here = existsSync(program);

type Answer<T> = { status: string; data: T };

async function startPrometheus(target: string, token: string): Promise<string> {
  const url = `http://127.0.0.1:${await freePort()}`;
  const prometheus = new ServiceProcess('prometheus', {
    program,
    args: (directory) => [
      `--config.file=${path.join(directory, 'prometheus.yml')}`,
      `--storage.tsdb.path=${path.join(directory, 'data')}`,
      `--web.listen-address=${new URL(url).host}`,
    ],
    answers: () =>
      fetch(`${url}/-/ready`).then(
        ({ ok }) => ok,
        () => false,
      ),
  });
  onTestFinished(() => prometheus.stop());
  const { directory } = prometheus;
  copyFileSync('deploy/prometheus/waybill.rules.yml', path.join(directory, 'waybill.rules.yml'));
  writeFileSync(path.join(directory, 'token'), token);
  const config = readFileSync('deploy/prometheus/prometheus.yml', 'utf8')
    .replaceAll('15s', '1s')
    .replace('/etc/prometheus/waybill-token', path.join(directory, 'token'))
    .replace('127.0.0.1:4980', target);
  writeFileSync(path.join(directory, 'prometheus.yml'), config);
  await prometheus.start();
  return url;
}

it.skipIf(!here)('P14 N14 a real Prometheus scrapes a relay and evaluates the rules', async () => {
  const server = await serveDatabase(db);
  const queue = await makeQueue(db);
  await queue.enqueue(2);
  await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
  const url = await startPrometheus(new URL(server.url).host, await server.token('read'));
  const ask = async <T>(question: string): Promise<T> => {
    const answer = (await (await fetch(`${url}/api/v1/${question}`)).json()) as Answer<T>;
    expect(answer.status).toBe('success');
    return answer.data;
  };
  type Alerts = { alerts: { labels: Record<string, string>; state: string; value: string }[] };
  const alert = await waitFor(
    async () =>
      (await ask<Alerts>('alerts')).alerts.find(
        ({ labels }) => labels['alertname'] === 'outbox_paused_waiting',
      ),
    { what: 'the alert', timeoutMs: 25_000 },
  );
  expect(alert).toMatchObject({
    labels: { job: 'waybill', destination: queue.name, severity: 'warning' },
    state: 'pending',
    value: '2e+00',
  });
  const up = await ask<{ result: { value: [number, string] }[] }>('query?query=up');
  expect(up.result.map(({ value }) => value[1])).toEqual(['1']);
  type Rules = { groups: { rules: { name: string; health: string; lastError?: string }[] }[] };
  const evaluated = async () => {
    const rules = (await ask<Rules>('rules')).groups.flatMap((group) => group.rules);
    return rules.every(({ health }) => health !== 'unknown') && rules;
  };
  const rules = await waitFor(evaluated, { what: 'all rules to be evaluated' });
  expect(rules.map(({ name, health }) => ({ name, health }))).toEqual(
    readRules().map(({ alert: name }) => ({ name, health: 'ok' })),
  );
});
