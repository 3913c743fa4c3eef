// Checks the manifests of deploy/kubernetes without a cluster. The compiler checks fields and types against Kubernetes'
// own types, so a misspelt field fails. Every path, port, variable, flag and deadline of Waybill is compared with the
// code.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { describe, expect, it, onTestFinished } from 'vitest';
import { parseAllDocuments } from 'yaml';

import { resolveConfig } from '../../src/config.js';
import type { Config } from '../../src/config.js';
import type { Database } from '../../src/database/connection.js';
import { defaultPort, resolveServerOptions } from '../../src/server/options.js';
import { resolveRelayOptions } from '../../src/relay/options.js';
import { createApp } from '../../src/server/app.js';
import { Background } from '../../src/server/background.js';
import { metricCatalogue } from '../../src/telemetry/metric-catalogue.js';

const folder = 'deploy/kubernetes';
const files = readdirSync(folder).filter((name) => name.endsWith('.yaml'));

type Probe = {
  httpGet: { path: string; port: string };
  periodSeconds: number;
  failureThreshold: number;
};
type Container = {
  name: string;
  image: string;
  args?: string[];
  env?: { name: string; value: string }[];
  ports?: { name: string; containerPort: number }[];
  startupProbe?: Probe;
  readinessProbe?: Probe;
  livenessProbe?: Probe;
  resources?: { limits?: Record<string, string>; requests?: Record<string, string> };
  securityContext?: Record<string, unknown>;
  volumeMounts?: { name: string; mountPath: string; readOnly?: boolean }[];
};
type Pod = {
  terminationGracePeriodSeconds?: number;
  automountServiceAccountToken?: boolean;
  securityContext?: Record<string, unknown>;
  containers: Container[];
  volumes?: { name: string; secret?: { secretName: string }; configMap?: { name: string } }[];
};
type Manifest = {
  apiVersion: string;
  kind: string;
  metadata?: { name?: string; labels?: Record<string, string> };
  spec: Record<string, never>;
};

// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- each test says what it looks for
function read<T = Manifest>(name: string): T {
  const documents = parseAllDocuments(readFileSync(path.join(folder, name), 'utf8'), {
    strict: true,
    uniqueKeys: true,
  });
  expect(documents).toHaveLength(1);
  const [document] = documents;
  expect(document?.errors).toEqual([]);
  return document?.toJS() as T;
}

const podOf = (name: string): Pod =>
  read<{ spec: { template: { spec: Pod } } }>(name).spec.template.spec;
const only = ({ containers: [container] }: Pod): Container => {
  if (container === undefined) throw new Error('there is one container');
  return container;
};
const relayPod = podOf('deployment.yaml');
const relay = only(relayPod);

/** The kinds of Kubernetes itself, and where their types are; other kinds belong to operators. */
const builtIn: Record<string, string> = {
  'apps/v1 Deployment': 'apps/v1',
  'batch/v1 CronJob': 'batch/v1',
  'batch/v1 Job': 'batch/v1',
  'v1 Service': 'core/v1',
  'policy/v1 PodDisruptionBudget': 'policy/v1',
  'networking.k8s.io/v1 NetworkPolicy': 'networking/v1',
  'autoscaling/v2 HorizontalPodAutoscaler': 'autoscaling/v2',
};

/** A folder in the checkout, so that packages resolve; removed when the test ends. */
function temporaryFolder(): string {
  mkdirSync('coverage', { recursive: true });
  const directory = mkdtempSync(path.resolve('coverage', 'manifests-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  return directory;
}

/** The compiler's errors for manifests, as objects of the Kubernetes types. */
function compiled(manifests: readonly Manifest[]): string {
  const directory = temporaryFolder();
  const lines = manifests.map((manifest, index) => {
    const from = builtIn[`${manifest.apiVersion} ${manifest.kind}`] ?? '';
    const type = `import('kubernetes-types/${from}.js').${manifest.kind}`;
    return `export const manifest${index}: ${type} = ${JSON.stringify(manifest)};`;
  });
  const file = path.join(directory, 'manifests.ts');
  writeFileSync(file, lines.join('\n'));
  const compiler = path.resolve('node_modules', 'typescript', 'bin', 'tsc');
  const flags = [
    '--ignoreConfig',
    '--noEmit',
    '--strict',
    '--skipLibCheck',
    '--types',
    '',
    '--module',
    'nodenext',
  ];
  try {
    execFileSync(process.execPath, [compiler, ...flags, file], { encoding: 'utf8' });
    return '';
  } catch (error) {
    return String((error as { stdout?: string }).stdout);
  }
}

describe('the manifests', () => {
  it('have only fields that Kubernetes knows, and a misspelt one is found', () => {
    const manifests = files.map((name) => read(name));
    const known = manifests.filter(({ apiVersion, kind }) => `${apiVersion} ${kind}` in builtIn);
    expect(known.map(({ kind }) => kind).toSorted()).toEqual(
      Object.keys(builtIn)
        .map((key) => key.split(' ')[1] ?? '')
        .toSorted(),
    );
    expect(
      manifests
        .filter((m) => !known.includes(m))
        .map(({ kind }) => kind)
        .toSorted(),
    ).toEqual(['Kustomization', 'ScaledObject', 'ServiceMonitor']);
    expect(compiled(known)).toBe('');
    const misspelt = JSON.parse(
      JSON.stringify(known).replace('terminationGracePeriodSeconds', 'terminationGracePeriod'),
    ) as Manifest[];
    expect(compiled(misspelt)).toContain('terminationGracePeriod');
  });

  it('state that they were not tested on a cluster', () => {
    for (const name of files)
      expect(readFileSync(path.join(folder, name), 'utf8'), name).toMatch(
        /[Nn]ot (tried|tested) in a cluster/,
      );
  });

  it('are all applied by the kustomization, or listed there as left out', () => {
    const text = readFileSync(path.join(folder, 'kustomization.yaml'), 'utf8');
    const { resources, configMapGenerator, images } = read<{
      resources: string[];
      configMapGenerator: { name: string; files: string[] }[];
      images: { name: string }[];
    }>('kustomization.yaml');
    for (const name of resources) expect(files).toContain(name);
    const others = files.filter(
      (name) => name !== 'kustomization.yaml' && !resources.includes(name),
    );
    for (const name of others) expect(text).toMatch(new RegExp(`^# {3}${name} `, 'm'));
    expect(images.map(({ name }) => name)).toEqual([relay.image]);
    const config = relayPod.volumes?.find(({ configMap }) => configMap !== undefined);
    expect(configMapGenerator.map(({ name }) => name)).toEqual([config?.configMap?.name]);
    const mounted = relay.volumeMounts?.find(({ name }) => name === config?.name);
    expect(relay.args).toContain(`${mounted?.mountPath}/${configMapGenerator[0]?.files[0]}`);
  });

  it('select each other by the same labels', () => {
    const { labels } = read<{ spec: { template: { metadata: { labels: object } } } }>(
      'deployment.yaml',
    ).spec.template.metadata;
    for (const name of ['deployment.yaml', 'disruption-budget.yaml', 'service-monitor.yaml'])
      expect(
        read<{ spec: { selector: { matchLabels: object } } }>(name).spec.selector.matchLabels,
      ).toEqual(labels);
    const service = read<{ metadata: { labels: object }; spec: { selector: object } }>(
      'service.yaml',
    );
    expect([service.spec.selector, service.metadata.labels]).toEqual([labels, labels]);
    const policy = read<{ spec: { podSelector: { matchLabels: object } } }>('network-policy.yaml');
    expect(labels).toMatchObject(policy.spec.podSelector.matchLabels);
    for (const name of ['autoscaler.yaml', 'scaled-object.yaml'])
      expect(read<{ spec: { scaleTargetRef: object } }>(name).spec.scaleTargetRef).toMatchObject({
        name: read('deployment.yaml').metadata?.name,
      });
  });
});

describe('the relays', () => {
  it('have a valid configuration, on the port that probes and services use', async () => {
    const text = readFileSync(path.join(folder, 'waybill.config.mjs'), 'utf8');
    const directory = temporaryFolder();
    const file = path.join(directory, 'waybill.config.mjs');
    const built = pathToFileURL(path.resolve('dist', 'index.js')).href;
    writeFileSync(file, text.replace("'waybill'", `'${built}'`));
    const { default: config } = (await import(file)) as { default: Config };
    expect(() => resolveConfig(config)).not.toThrow();
    const { host, port, authentication } = resolveServerOptions(config.server ?? undefined);
    expect({ host, port, authentication }).toEqual({
      host: '0.0.0.0',
      port: defaultPort,
      authentication: 'tokens',
    });
    expect(relay.ports).toEqual([{ name: 'http', containerPort: port }]);
    const service = read<{ spec: { ports: object[] } }>('service.yaml');
    expect(service.spec.ports).toEqual([{ name: 'http', port, targetPort: 'http' }]);
    const policy = read<{ spec: { ingress: { ports: object[] }[] } }>('network-policy.yaml');
    expect(policy.spec.ingress.flatMap(({ ports }) => ports)).toEqual([{ protocol: 'TCP', port }]);
    const { endpoints } = read<{ spec: { endpoints: { port: string; path: string }[] } }>(
      'service-monitor.yaml',
    ).spec;
    expect(endpoints).toMatchObject([{ port: 'http', path: '/metrics' }]);
  });

  it('have probes that the server answers: only readiness needs the database', async () => {
    const broken = { query: () => Promise.reject(new Error('no database')) } as unknown as Database;
    const app = createApp({
      database: broken,
      authentication: 'tokens',
      isReady: () => true,
      background: new Background(broken),
    });
    const status = async (probe: Probe | undefined) => {
      expect(probe?.httpGet.port).toBe('http');
      return (await app.request(`http://10.0.0.1${probe?.httpGet.path}`)).status;
    };
    expect(await status(relay.startupProbe)).toBe(200);
    expect(await status(relay.livenessProbe)).toBe(200);
    expect(await status(relay.readinessProbe)).toBe(503);
    expect((await app.request('/nothing')).status).toBe(404);
  });

  it('get more time to stop than they need, as does docker stop', () => {
    const { stopDeadlineMs } = resolveRelayOptions();
    const farewellMs = Number(
      /const farewellMs = ([\d_]+);/.exec(readFileSync('src/relay/relay-run.ts', 'utf8'))?.[1],
    );
    const longestMs = stopDeadlineMs + farewellMs;
    expect(relayPod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual((2 * longestMs) / 1000);
    expect(longestMs).toBeLessThan(10_000);
  });

  it('are not restarted while they wait for the database at their start', () => {
    const { startupWaitMs } = resolveRelayOptions();
    // in addition to the wait: the start of the process, and connecting
    const longestSeconds = startupWaitMs / 1000 + 30;
    const { periodSeconds = 0, failureThreshold = 0 } = relay.startupProbe ?? {};
    expect(periodSeconds * failureThreshold).toBeGreaterThanOrEqual(longestSeconds);
    const { progressDeadlineSeconds, minReadySeconds } = read<{
      spec: { progressDeadlineSeconds: number; minReadySeconds: number };
    }>('deployment.yaml').spec;
    expect(progressDeadlineSeconds).toBeGreaterThan(
      periodSeconds * failureThreshold + minReadySeconds,
    );
    const image = readFileSync('deploy/container/Containerfile', 'utf8');
    const [, startPeriod] = /--start-period=(\d+)s/.exec(image) ?? [];
    expect(Number(startPeriod)).toBeGreaterThanOrEqual(longestSeconds);
  });

  it('limit Node to less memory than the container limit', () => {
    const [, heap] =
      /--max-old-space-size=(\d+)/.exec(
        relay.env?.find((entry) => entry.name === 'NODE_OPTIONS')?.value ?? '',
      ) ?? [];
    const limit = Number(/^(\d+)Mi$/.exec(relay.resources?.limits?.['memory'] ?? '')?.[1]);
    expect(Number(heap)).toBeLessThanOrEqual(limit * 0.8);
  });

  it('are scaled by a metric that exists', () => {
    const [trigger] = read<{ spec: { triggers: { metadata: { query: string } }[] } }>(
      'scaled-object.yaml',
    ).spec.triggers;
    const [, name = ''] = /^max\((\w+)\)$/.exec(trigger?.metadata.query ?? '') ?? [];
    expect(Object.keys(metricCatalogue)).toContain(name);
  });
});

describe.each(['deployment.yaml', 'migrate-job.yaml'])('the pods of %s', (name) => {
  const pod = podOf(name);
  const container = only(pod);

  it('follow the restricted profile, with a read-only file system', () => {
    expect(pod.automountServiceAccountToken).toBe(false);
    expect(pod.securityContext).toMatchObject({
      runAsNonRoot: true,
      runAsUser: 65_532,
      fsGroup: 65_532,
      seccompProfile: { type: 'RuntimeDefault' },
    });
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    for (const mount of container.volumeMounts ?? []) expect(mount.readOnly).toBe(true);
    expect(container.resources?.limits).toHaveProperty('memory');
    expect(container.resources?.limits).not.toHaveProperty('cpu');
  });

  it('use variables that Waybill reads, and files of their own secret only', () => {
    const sources = ['src/cli/connection-options.ts', 'src/cli/start.ts']
      .map((file) => readFileSync(file, 'utf8'))
      .join('\n');
    const mount = container.volumeMounts?.find(({ mountPath }) => mountPath === '/etc/waybill');
    const volume = pod.volumes?.find(({ name: called }) => called === mount?.name);
    expect(volume?.secret?.secretName).toBe(
      name === 'migrate-job.yaml' ? 'waybill-owner' : 'waybill',
    );
    const text = readFileSync(path.join(folder, name), 'utf8');
    const create = new RegExp(`create secret generic ${volume?.secret?.secretName} (.*)`).exec(
      text,
    );
    for (const { name: variable, value } of container.env ?? []) {
      if (variable === 'NODE_OPTIONS') continue;
      const [, secret = ''] = /^(DATABASE_\w*URL)_FILE$/.exec(variable) ?? [];
      expect(sources).toContain(`secretFromEnvironment('${secret}')`);
      expect(create?.[1]).toContain(`--from-file=${path.basename(value)}`);
      expect(path.dirname(value)).toBe('/etc/waybill');
    }
    expect(container.env?.length).toBeGreaterThan(0);
  });
});
