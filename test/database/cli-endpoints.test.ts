// `waybill endpoints` as operators and scripts use it: its output, its refusals and its exit codes.

import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import {
  cli,
  environmentOf,
  json,
  startCli,
  temporaryDirectory,
  writeConfig,
} from '../support/cli.js';
import type { Finished } from '../support/cli.js';
import { endpointSettings, startReceiver, testKey } from '../support/endpoints.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { places, sendOne } from '../support/relay.js';

const db = testDatabase();
const url = 'https://example.com/hooks';
const served = `{ destinations: {}, routes: [], endpoints: ${JSON.stringify(endpointSettings)} }`;

async function run(args: string[], environment: Record<string, string> = {}): Promise<Finished> {
  return cli(['endpoints', ...args, '--config', writeConfig(served)], {
    environment: { ...environmentOf(db), WAYBILL_SECRET_KEY: testKey, ...environment },
  });
}

type Made = { name: string; secret: string; fingerprint: string };

async function add(more: string[] = [], environment = {}): Promise<Made> {
  const args = ['add', url, '--topics', 'user.*', '--tenant', 'acme', '--json', ...more];
  return json(await run(args, environment)) as Made;
}

async function listed(name: string): Promise<Record<string, unknown>> {
  const all = json(await run(['list', '--json'])) as Record<string, unknown>[];
  return only(all.filter((each) => each['name'] === name));
}

describe('waybill endpoints', { timeout: 60_000 }, () => {
  it('add prints the name and the secret, once; list shows a fingerprint only', async () => {
    const where = ['--topics', 'user.*, order.paid', '--tenant', 'acme', '--namespace', 'shop'];
    const what = ['--name', 'first', '--description', 'the first'];
    const added = await run(['add', url, ...where, ...what]);
    expect(added.code).toBe(0);
    expect(added.stdout).toMatch(/^name {4}first\nsecret {2}whsec_\S+\n$/);
    expect(added.stderr).toMatch(/not shown again/);
    const secret = /whsec_\S+/.exec(added.stdout)?.[0] ?? '-';
    expect(await listed('first')).toMatchObject({
      url,
      topics: ['user.*', 'order.paid'],
      tenantId: 'acme',
      namespace: 'shop',
      description: 'the first',
      enabled: true,
    });
    for (const args of [['list'], ['list', '--json'], ['list', '--tenant', 'acme']]) {
      const { stdout } = await run(args);
      expect(stdout).toContain('first');
      expect(stdout).not.toContain(secret.slice('whsec_'.length));
    }
    expect((await run(['list', '--tenant', 'unknown', '--json'])).stdout).toBe('[]\n');
  });

  it('policies are set, listed by label, changed and removed; recover asks for a time without a failure', async () => {
    const file = path.join(temporaryDirectory(), 'query.json');
    writeFileSync(file, '{"token": "hidden"}');
    const what = ['--filter', '{"amount": {"gte": 100}}', '--labels', 'plan:gold,region:eu'];
    const how = ['--rate', '{"perSecond": 10}', '--concurrency', '2', '--timeout', '5000'];
    const { name } = await add([
      ...what,
      ...how,
      '--expire-after',
      '86400000',
      '--query-file',
      file,
    ]);
    const policies = {
      filter: { amount: { gte: 100 } },
      labels: { plan: 'gold', region: 'eu' },
      expireAfterMs: 86_400_000,
      rate: { perSecond: 10 },
      concurrency: 2,
      timeoutMs: 5000,
      failingSince: null,
    };
    expect(await listed(name)).toMatchObject(policies);
    const found = json(await run(['list', '--labels', 'region:eu', '--json'])) as Made[];
    expect(found.map((each) => each.name)).toEqual([name]);
    expect(JSON.stringify(found)).not.toContain('hidden');
    await run(['change', name, '--filter', 'null', '--rate', 'null', '--labels', '']);
    expect(await listed(name)).toMatchObject({ ...policies, filter: null, rate: null, labels: {} });
    const refused = await run(['change', name, '--filter', '{"amount": {"above": 1}}']);
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringContaining('filter.amount.above is not an operator') as string,
    ]);
    expect((await run(['change', name, '--filter', 'amount'])).stderr).toContain('give JSON');
    expect(await run(['recover', name])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has not failed since its last success') as string,
    });
    const since = '2026-01-01T00:00:00Z';
    expect(json(await run(['recover', name, '--since', since, '--json']))).toMatchObject({
      name,
      resent: 0,
    });
  });

  it('a secret of the receiver comes from the environment or a file', async () => {
    const secret = `whsec_${randomBytes(24).toString('base64')}`;
    expect((await add([], { WAYBILL_ENDPOINT_SECRET: secret })).secret).toBe(secret);
    const file = path.join(temporaryDirectory(), 'secret');
    writeFileSync(file, `${secret}\n`);
    expect((await add([], { WAYBILL_ENDPOINT_SECRET_FILE: file })).secret).toBe(secret);
  });

  it('without the key, the error names the missing variable and how to make one', async () => {
    const args = ['add', url, '--topics', '*', '--tenant', 'a'];
    const { code, stderr } = await run(args, { WAYBILL_SECRET_KEY: '' });
    expect(code).toBe(2);
    expect(stderr).toMatch(/WAYBILL_SECRET_KEY is not set.*openssl rand -base64 32/);
    const listing = await run(['list'], { WAYBILL_SECRET_KEY: '' });
    expect(listing.code).toBe(0);
  });

  it('rotate adds a secret, --retire-old ends the overlap', async () => {
    const made = await add();
    const rotated = json(await run(['rotate', made.name, '--json'])) as Made;
    expect(rotated.secret).not.toBe(made.secret);
    const both = [rotated.fingerprint, made.fingerprint];
    expect((await listed(made.name))['fingerprints']).toEqual(both);
    const retired = json(await run(['rotate', made.name, '--retire-old', '--json']));
    expect(retired).toEqual({ name: made.name, retired: 1 });
    expect((await listed(made.name))['fingerprints']).toEqual([rotated.fingerprint]);
  });

  it('disable, enable and change are shown in the list; remove asks first', async () => {
    const { name } = await add();
    expect((await run(['disable', name, '--reason', 'asked to'])).code).toBe(0);
    expect(await listed(name)).toMatchObject({ enabled: false, disabledBecause: 'asked to' });
    expect((await run(['enable', name])).code).toBe(0);
    expect(await listed(name)).toMatchObject({ enabled: true, disabledBecause: null });
    await run(['change', name, '--url', `${url}/2`, '--topics', 'order.*']);
    expect(await listed(name)).toMatchObject({ url: `${url}/2`, topics: ['order.*'] });
    await sendOne(db, { topic: 'order.paid', tenantId: 'acme' });
    expect(await run(['remove', name])).toMatchObject({ code: 4 });
    const removed = await run(['remove', name, '--yes']);
    expect(removed.code).toBe(0);
    expect(removed.stderr).toMatch(/deliveries wait for .*: move_deliveries or discard_deliveries/);
    expect(await places(db, name)).toMatchObject({ waiting: 1 });
    const status = await cli(['status'], { environment: environmentOf(db) });
    expect(status.stderr).toContain(`${name} is no longer configured and 1 deliveries wait for it`);
  });

  it.each([['disable'], ['enable'], ['rotate'], ['test'], ['remove', '--yes']])(
    '%s of an unknown one ends with exit code 3',
    async (action, ...more) => {
      const { code, stdout, stderr } = await run([action, 'unknown', ...more]);
      expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
      expect(stderr).toMatch(/endpoint "unknown" does not exist/);
    },
  );

  it('a name that is taken is refused with exit code 4', async () => {
    const { name } = await add();
    const args = ['add', url, '--topics', '*', '--tenant', 'a', '--name', name];
    expect(await run(args)).toMatchObject({ code: 4, stdout: '' });
  });

  it('test sends one message at once and prints the response', async () => {
    const receiver = await startReceiver();
    const { name } = await add(['--name', 'tested']);
    await run(['change', name, '--url', receiver.url]);
    const good = await run(['test', name]);
    expect(good.code).toBe(0);
    expect(good.stdout).toMatch(/^delivered in \d+ ms\nstatus {2}204\n/);
    expect(JSON.parse(only(receiver.requests).body)).toMatchObject({ test: true, endpoint: name });
    receiver.status = 418;
    const bad = await run(['test', name, '--json']);
    expect(bad.code).toBe(1);
    expect(json(bad)).toMatchObject({
      delivered: false,
      status: '418',
      code: 'http_status',
      answer: 'an answer',
    });
    expect(await places(db, name)).toMatchObject({ waiting: 0, delivered: 0, dead: 0 });
  });

  it('reseal moves all secrets to the first key, so that the old key can be removed', async () => {
    const { name } = await add();
    const key = randomBytes(32).toString('base64');
    const done = await run(['reseal', '--json'], { WAYBILL_SECRET_KEY: `${key},${testKey}` });
    expect((json(done) as { resealed: number }).resealed).toBeGreaterThan(0);
    expect(json(await run(['reseal', '--json'], { WAYBILL_SECRET_KEY: key }))).toEqual({
      resealed: 0,
    });
    const old = await run(['test', name]);
    expect(old.stderr).toMatch(/sealed with the key [0-9a-f]{8}, which is not among those given/);
    await run(['reseal'], { WAYBILL_SECRET_KEY: `${testKey},${key}` });
  });
});

describe('waybill start and drain', { timeout: 60_000 }, () => {
  it('serve endpoints that are added while they run', async () => {
    const receiver = await startReceiver();
    const config = writeConfig(served);
    const environment = { ...environmentOf(db), WAYBILL_SECRET_KEY: testKey };
    const relay = startCli(['start', '--config', config], { environment });
    await relay.says('relay_started');
    const { name } = await add();
    await run(['change', name, '--url', receiver.url]);
    await receiver.has(await sendOne(db, { topic: 'user.added', tenantId: 'acme' }));
    relay.process.kill('SIGTERM');
    expect((await relay.ended()).code).toBe(0);
    const id = await sendOne(db, { topic: 'user.later', tenantId: 'acme' });
    for (const each of ['first', 'tested']) await run(['disable', each]);
    await cli(['drain', '--config', config], { environment });
    expect(receiver.ids).toContain(id);
  });
});
