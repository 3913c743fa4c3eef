// The workflows that test and publish the package: they are valid YAML, their commands exist, and the steps of a release
// that can run here do what they say.

import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

import { describe, expect, it, onTestFinished } from 'vitest';
import { parseDocument } from 'yaml';

type Step = { name?: string; run?: string; uses?: string };
type Job = {
  needs?: string;
  uses?: string;
  permissions?: Record<string, string>;
  environment?: string;
  strategy?: { matrix: { os: string[]; node: string[] } };
  steps?: Step[];
};
type Workflow = { on: object; permissions: Record<string, string>; jobs: Record<string, Job> };

const folder = '.github/workflows';
const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as {
  version: string;
  scripts: Record<string, string>;
};

function workflow(name: string): Workflow {
  const document = parseDocument(readFileSync(path.join(folder, name), 'utf8'), { strict: true });
  expect([...document.errors, ...document.warnings]).toEqual([]);
  return document.toJS() as Workflow;
}

const stepsOf = ({ jobs }: Pick<Workflow, 'jobs'>): Step[] =>
  Object.values(jobs).flatMap(({ steps = [] }) => steps);

describe.each(readdirSync(folder))('%s', (name) => {
  it('is valid YAML, and asks for no right that a job does not name', () => {
    const { permissions, jobs } = workflow(name);
    expect(permissions).toEqual({ contents: 'read' });
    expect(Object.keys(jobs).length).toBeGreaterThan(0);
  });

  it('runs scripts, files and projects of tests that exist', () => {
    const { jobs } = workflow(name);
    const commands = stepsOf({ jobs }).flatMap(({ run = '' }) => run.split('\n'));
    const named = (pattern: RegExp) =>
      commands.flatMap((command) => [...command.matchAll(pattern)].map(([, part = '']) => part));
    const scripts = named(/npm run (\S+)/g);
    expect(scripts.filter((script) => !(script in manifest.scripts))).toEqual([]);
    const called = Object.values(jobs).flatMap(({ uses }) => uses ?? []);
    const files = [...named(/^(\.\S+)/g), ...called];
    expect(files.filter((file) => !existsSync(file))).toEqual([]);
    const tests = readFileSync('vitest.config.ts', 'utf8');
    const projects = named(/--project (\S+)/g);
    expect(projects.filter((project) => !tests.includes(`'${project}'`))).toEqual([]);
  });

  it('names the exact commit of every action', () => {
    const actions = stepsOf(workflow(name)).flatMap(({ uses }) => uses ?? []);
    expect(actions.length).toBeGreaterThan(0);
    for (const action of actions) expect(action).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40}$/);
  });
});

it('X1 the tests run on every platform and on every supported version of Node', () => {
  const { matrix } = workflow('test.yml').jobs['platforms']?.strategy ?? {};
  expect(matrix?.os.map((name) => name.replace(/-\d[\d.]*/, ''))).toEqual([
    'ubuntu',
    'ubuntu-arm',
    'macos',
    'windows',
  ]);
  expect(matrix?.node).toEqual(['20', '22', '24']);
});

describe('a release', () => {
  const { test, publish } = workflow('release.yml').jobs;
  const steps = publish?.steps ?? [];

  it('is published after all tests, with provenance, and without a token', () => {
    expect(test).toEqual({ uses: './.github/workflows/test.yml' });
    expect(publish?.needs).toBe('test');
    expect(publish?.permissions).toEqual({ contents: 'read', 'id-token': 'write' });
    expect(publish?.environment).toBe('npm');
    const runs = steps.flatMap(({ run }) => run ?? []);
    expect(runs.at(-1)).toBe('npm publish --provenance --access public');
    expect(runs.indexOf('npm run build')).toBeGreaterThan(runs.indexOf('npm ci'));
    expect(readFileSync(path.join(folder, 'release.yml'), 'utf8')).not.toMatch(/secrets\.|TOKEN/);
  });

  /** Runs the step of this name beside a copy of package.json, and returns the changed copy. */
  async function runStep(name: string, environment: Record<string, string>): Promise<unknown> {
    const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-release-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    cpSync('package.json', path.join(directory, 'package.json'));
    const script = steps.find((step) => step.name === name)?.run ?? 'exit 1';
    await promisify(execFile)('bash', ['-e', '-c', script], {
      cwd: directory,
      env: { PATH: process.env['PATH'] ?? '', HOME: directory, ...environment },
    });
    return JSON.parse(readFileSync(path.join(directory, 'package.json'), 'utf8'));
  }
  const isWindows = process.platform === 'win32';

  it.skipIf(isWindows)('is refused if the tag is not the version', async () => {
    const step = 'The tag is the version';
    await runStep(step, { GITHUB_REF_NAME: `v${manifest.version}` });
    await expect(runStep(step, { GITHUB_REF_NAME: 'v0.0.1' })).rejects.toThrow('Command failed');
  });

  it.skipIf(isWindows)('names the repository that builds it', async () => {
    const address = 'https://git.example.com/acme/waybill';
    const changed = await runStep('Add the address of the repository', {
      GITHUB_SERVER_URL: 'https://git.example.com',
      GITHUB_REPOSITORY: 'acme/waybill',
    });
    expect(changed).toEqual({
      ...manifest,
      repository: { type: 'git', url: `git+${address}.git` },
      homepage: `${address}#readme`,
      bugs: { url: `${address}/issues` },
    });
  });
});
