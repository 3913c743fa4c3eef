// The Helm chart makes the same objects as deploy/kubernetes. Helm renders it; nothing is applied to a cluster. Without
// the program the tests are skipped with a message.

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';

const chart = 'deploy/helm/waybill';
const kubernetes = 'deploy/kubernetes';

type Manifest = {
  kind: string;
  metadata: { name?: string; labels?: object; annotations?: object };
};

function findHelm(): string {
  const folders = (process.env['PATH'] ?? '').split(path.delimiter);
  const found = [
    process.env['WAYBILL_TEST_HELM'],
    ...folders.map((folder) => path.join(folder, 'helm')),
  ].find((program) => program !== undefined && existsSync(program));
  if (found === undefined)
    console.warn(
      'The tests of the Helm chart are left out: no helm: go install helm.sh/helm/v3/cmd/helm@latest, ' +
        'or set WAYBILL_TEST_HELM to its program.',
    );
  return found ?? '';
}

const helm = findHelm();

function run(...args: string[]): { ok: boolean; words: string } {
  const { status, stdout, stderr } = spawnSync(helm, args, { encoding: 'utf8' });
  return { ok: status === 0, words: `${stdout}${stderr}` };
}

/** The objects that the chart makes with these values, by kind. */
function rendered(...values: string[]): Map<string, Manifest> {
  const flags = values.flatMap((value) => ['--set', value]);
  const { ok, words } = run('template', 'waybill', chart, ...flags);
  expect(ok, words).toBe(true);
  const manifests = parseAllDocuments(words).map((document) => document.toJS() as Manifest);
  return new Map(manifests.map((manifest) => [manifest.kind, manifest]));
}

/** Without what a chart must have in addition: the label of the release. */
function plain(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, (key, part: unknown) =>
      key === 'app.kubernetes.io/instance' ? undefined : part,
    ),
  );
}

function read(name: string): Manifest {
  return parse(readFileSync(path.join(kubernetes, name), 'utf8')) as Manifest;
}

const image = 'registry.example.com/shop/waybill:0.2.0';

describe.skipIf(helm === '')('the Helm chart', () => {
  it('is valid, and has the version of the package', () => {
    expect(run('lint', '--strict', chart)).toMatchObject({ ok: true });
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    expect(parse(readFileSync(path.join(chart, 'Chart.yaml'), 'utf8'))).toMatchObject({
      version,
      appVersion: version,
    });
  });

  it.each<[string, string[]]>([
    ['service.yaml', []],
    ['disruption-budget.yaml', []],
    ['network-policy.yaml', []],
    ['service-monitor.yaml', ['serviceMonitor.enabled=true']],
    ['autoscaler.yaml', ['autoscaler.enabled=true']],
    ['scaled-object.yaml', ['scaledObject.enabled=true']],
  ])('makes the object of %s', (name, values) => {
    const wanted = read(name);
    expect(plain(rendered(...values).get(wanted.kind))).toEqual(wanted);
  });

  it('makes the object of deployment.yaml', () => {
    const made = plain(rendered().get('Deployment')) as {
      spec: { template: { metadata: { annotations?: object } } };
    };
    // kustomize gives the name of the configuration a hash instead
    delete made.spec.template.metadata.annotations;
    const text = JSON.stringify(made).replace(image, 'waybill');
    expect(JSON.parse(text)).toEqual(read('deployment.yaml'));
  });

  it('makes the object of migrate-job.yaml, as a hook that runs first', () => {
    const { metadata, ...made } = plain(rendered().get('Job')) as Manifest;
    const { metadata: wantedMetadata, ...wanted } = read('migrate-job.yaml');
    expect(made).toEqual(wanted);
    // with the number of the release instead of a random name
    expect(metadata).toMatchObject({
      name: 'waybill-migrate-1',
      labels: wantedMetadata.labels,
      annotations: { 'helm.sh/hook': 'pre-install,pre-upgrade' },
    });
  });

  it('has the same configuration, and restarts relays when it changes', () => {
    const config = readFileSync(path.join(kubernetes, 'waybill.config.mjs'), 'utf8');
    expect(rendered().get('ConfigMap')).toMatchObject({ data: { 'waybill.config.mjs': config } });
    const hashOf = (made: Map<string, Manifest>) =>
      /"waybill\/config":"(\w+)"/.exec(JSON.stringify(made.get('Deployment')))?.[1];
    expect(hashOf(rendered())).toMatch(/^[0-9a-f]{64}$/);
    expect(hashOf(rendered('config=other'))).not.toBe(hashOf(rendered()));
  });

  it('drains on a schedule without relays, with the deadline of the CronJob there', () => {
    const made = rendered('relay.enabled=false', 'drain.enabled=true');
    expect([...made.keys()].toSorted()).toEqual(['ConfigMap', 'CronJob', 'Job', 'NetworkPolicy']);
    const timing = ({ spec }: { spec: { schedule: string; jobTemplate: { spec: object } } }) => {
      const { backoffLimit, activeDeadlineSeconds } = spec.jobTemplate.spec as Record<
        string,
        number
      >;
      return { schedule: spec.schedule, backoffLimit, activeDeadlineSeconds };
    };
    const timed = (manifest: unknown) => timing(manifest as Parameters<typeof timing>[0]);
    expect(timed(made.get('CronJob'))).toEqual(timed(read('drain-cronjob.yaml')));
    expect(JSON.stringify(made.get('CronJob'))).toContain('"--max-ms","50000"');
  });

  it('leaves the number of relays to an autoscaler, and refuses two of them', () => {
    expect(rendered('autoscaler.enabled=true').get('Deployment')).not.toHaveProperty(
      'spec.replicas',
    );
    const both = ['--set', 'autoscaler.enabled=true,scaledObject.enabled=true'];
    expect(run('template', 'waybill', chart, ...both).words).toContain('enable one of them');
  });

  it('has a template for every manifest, and documents every value', () => {
    const templates = readdirSync(path.join(chart, 'templates'));
    const manifests = readdirSync(kubernetes).filter((name) =>
      /(?<!kustomization)\.yaml$/.test(name),
    );
    expect(templates.filter((name) => name.endsWith('.yaml')).toSorted()).toEqual(
      [...manifests, 'config.yaml'].toSorted(),
    );
    const used = new Set(
      templates.flatMap((name) =>
        [
          ...readFileSync(path.join(chart, 'templates', name), 'utf8').matchAll(
            /\.Values\.([\w.]+)/g,
          ),
        ].map(([, value = '']) => value),
      ),
    );
    const values = parse(readFileSync(path.join(chart, 'values.yaml'), 'utf8')) as Record<
      string,
      object
    >;
    const declared = Object.entries(values).flatMap(([name, value]) =>
      typeof value === 'object' ? Object.keys(value).map((key) => `${name}.${key}`) : [name],
    );
    expect([...used].toSorted()).toEqual(declared.toSorted());
  });
});
