// The files for Prometheus and Grafana are valid, and each alert fires when it should and not before.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { describe, expect, it, onTestFinished } from 'vitest';

import { alertNames } from '../../src/features/alerts/names.js';
import { metricsIn, readDashboard, readRules, rulesFile } from '../support/monitoring.js';
import { findPromtool, promtool } from '../support/promtool.js';

const program = findPromtool() ?? '';
const ruleTests = 'test/prometheus/waybill.rules.test.yml';

/** A rules file with other contents, removed when the test ends. */
function temporaryFile(name: string, text: string): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-rules-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const file = path.join(directory, name);
  writeFileSync(file, text);
  return file;
}

describe.skipIf(program === '')('the rules for Prometheus', () => {
  it('N14 P14 W8 are valid', () => {
    expect(promtool(program, ['check', 'rules', rulesFile])).toMatchObject({ ok: true });
    const config = ['check', 'config', '--syntax-only', 'deploy/prometheus/prometheus.yml'];
    expect(promtool(program, config)).toMatchObject({ ok: true });
  });

  it('N14 P14 W8 fire above their thresholds and after their time, not before', () => {
    expect(promtool(program, ['test', 'rules', ruleTests])).toMatchObject({ ok: true });
  });

  it('N14 P14 every alert has tests that fail if it never fires, and if it always fires', () => {
    const all = readRules().map(({ alert }) => alert);
    expect(all).toHaveLength(alertNames.length + 2);
    expect(failedWith(() => 'vector(0) > 1')).toEqual(all.toSorted());
    const always = (expr: string) =>
      expr.startsWith('absent') ? 'vector(1)' : expr.replace(/[<>] [\d.]+$/, '>= 0');
    expect(failedWith(always)).toEqual(all.toSorted());
  });

  /** The alerts whose tests fail when every expression is changed like this. */
  function failedWith(change: (expr: string) => string): string[] {
    let rules = readFileSync(rulesFile, 'utf8');
    for (const { expr } of readRules())
      rules = rules.replace(`expr: ${expr}\n`, () => `expr: ${change(expr)}\n`);
    const file = temporaryFile('changed.rules.yml', rules);
    const tests = readFileSync(ruleTests, 'utf8').replace(
      /^ {2}- .*waybill\.rules\.yml$/m,
      `  - ${file}`,
    );
    const { words } = promtool(program, ['test', 'rules', temporaryFile('test.yml', tests)]);
    return [
      ...new Set([...words.matchAll(/alertname: (\w+)/g)].map(([, name]) => name ?? '')),
    ].toSorted();
  }
});

describe('the dashboard for Grafana', () => {
  const { panels, templating, uid, title, schemaVersion } = readDashboard();

  it('P14 has panels with unique ids that do not overlap, and a selectable data source', () => {
    expect({ uid, title, schemaVersion }).toEqual({
      uid: 'waybill-outbox',
      title: 'Waybill',
      schemaVersion: 38,
    });
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(templating.list.map(({ name, type }) => ({ name, type }))).toEqual([
      { name: 'datasource', type: 'datasource' },
      { name: 'job', type: 'query' },
      { name: 'destination', type: 'query' },
    ]);
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) => {
      expect(x + w).toBeLessThanOrEqual(24);
      return Array.from({ length: w * h }, (_, n) => `${x + (n % w)},${y + Math.floor(n / w)}`);
    });
    expect(new Set(cells).size).toBe(cells.length);
    const source = { type: 'prometheus', uid: '${datasource}' };
    for (const panel of panels) {
      expect(panel.datasource).toEqual(source);
      expect(panel.targets.length).toBeGreaterThan(0);
      for (const target of panel.targets) expect(target.datasource).toEqual(source);
      expect(new Set(panel.targets.map(({ refId }) => refId)).size).toBe(panel.targets.length);
    }
  });

  it('P14 uses only variables that it defines', () => {
    const text = JSON.stringify([panels, templating]);
    const used = new Set([...text.matchAll(/\$\{?(\w+)/g)].map(([, name]) => name));
    const builtIn = ['__rate_interval', '__all'];
    expect(used).toEqual(new Set([...templating.list.map(({ name }) => name), ...builtIn]));
  });

  it('P14 N13 shows every metric that an alert uses', () => {
    const shown = panels.flatMap(({ targets }) => targets.flatMap(({ expr }) => metricsIn(expr)));
    for (const { alert, expr } of readRules())
      for (const metric of metricsIn(expr)) expect(shown, alert).toContain(metric);
  });

  it.skipIf(program === '')('P14 has expressions that Prometheus can parse', () => {
    const rules = panels.flatMap(({ id, targets }) =>
      targets.map(({ refId, expr }) => ({
        record: `panel:${id}:${refId}`,
        expr: expr.replaceAll('$__rate_interval', '5m'),
      })),
    );
    const check = (list: object[]) => {
      const text = JSON.stringify({ groups: [{ name: 'dashboard', rules: list }] });
      return promtool(program, ['check', 'rules', temporaryFile('panels.yml', text)]);
    };
    expect(check(rules)).toMatchObject({ ok: true });
    expect(check([{ record: 'a', expr: 'sum(outbox_dlq_depth' }])).toMatchObject({ ok: false });
  });
});
