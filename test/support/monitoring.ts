// Reads the Prometheus and Grafana files for tests. The rules have one field a line, so these few lines of YAML parsing
// are enough; promtool checks the rest.

import { readFileSync } from 'node:fs';

export const rulesFile = 'deploy/prometheus/waybill.rules.yml';
export const dashboardFile = 'deploy/grafana/waybill.json';

export type Rule = {
  alert: string;
  expr: string;
  for: string;
  severity: string;
  summary: string;
  remedy: string;
};

export function readRules(): Rule[] {
  const [, ...parts] = readFileSync(rulesFile, 'utf8').split(/^ {6}- (?=alert: )/m);
  return parts.map((part) => {
    const field = (name: string): string => {
      const found = new RegExp(`^ *${name}: (.*)$`, 'm').exec(part)?.[1];
      if (found === undefined) throw new Error(`a rule has no ${name}: ${part}`);
      return found.replace(/^'(.*)'$/, '$1');
    };
    return {
      alert: field('alert'),
      expr: field('expr'),
      for: field('for'),
      severity: field('severity'),
      summary: field('summary'),
      remedy: field('remedy'),
    };
  });
}

export type Panel = {
  id: number;
  title: string;
  type: string;
  datasource: { type: string; uid: string };
  gridPos: { h: number; w: number; x: number; y: number };
  targets: { refId: string; datasource: { type: string; uid: string }; expr: string }[];
};

export type Dashboard = {
  title: string;
  uid: string;
  schemaVersion: number;
  templating: { list: { name: string; type: string; query: string | { query: string } }[] };
  panels: Panel[];
};

export function readDashboard(): Dashboard {
  return JSON.parse(readFileSync(dashboardFile, 'utf8')) as Dashboard;
}

/** The metrics that an expression names. */
export function metricsIn(expr: string): string[] {
  return [...new Set(expr.match(/\boutbox_\w+/g))];
}
