// Runs the code of the documents as a reader would: the built command line, the configuration and the producer of
// examples/first-steps, in separate processes, against a fresh database.

import { randomBytes } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { beforeAll, expect, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { runNode, startCli, temporaryDirectory } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { tlsFiles } from '../support/egress.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const example = (name: string) => path.resolve('examples/first-steps', name);
const environment = { DATABASE_URL: db.url };

// the examples use the default schema, whatever the schema of this project is
beforeAll(async () => {
  await migrateUp({ url: db.url });
});

async function finish(program: Running): Promise<string> {
  const { code, stdout, stderr } = await program.ended();
  if (code !== 0) throw new Error(`it ended with ${code}:\n${stdout}\n${stderr}`);
  return stdout;
}

async function produce(): Promise<string> {
  const output = await finish(runNode([example('producer.mjs')], { environment }));
  return /enqueued (\S+)/.exec(output)?.[1] ?? '';
}

test('M1 M11 getting started: a relay starts, a producer commits, the message arrives, and the page shows it', async () => {
  const page = readFileSync('docs/start/getting-started.md', 'utf8');
  const project = temporaryDirectory();
  for (const name of ['waybill.config.ts', 'register.ts']) {
    const [header = '', ...rest] = readFileSync(`examples/getting-started/${name}`, 'utf8').split(
      '\n\n',
    );
    expect(header).toMatch(/^\/\/ .*$/);
    const [, block = ''] = page.split(`\`${name}\``)[1]?.split(/```(?:ts)?\n/) ?? [];
    expect(block).toBe(rest.join('\n\n'));
    writeFileSync(path.join(project, name), block);
  }
  mkdirSync(path.join(project, 'node_modules'));
  symlinkSync(process.cwd(), path.join(project, 'node_modules/waybill'), 'dir');
  symlinkSync(path.resolve('node_modules/pg'), path.join(project, 'node_modules/pg'), 'dir');
  const inProject = { environment, cwd: project };

  const relay = startCli(['start'], inProject);
  await relay.says('"msg":"serving"');
  const line = relay.stderr.split('\n').find((text) => text.includes('"msg":"serving"')) ?? '';
  const serving = JSON.parse(line) as { page: string; login: string };
  const jiti = path.resolve('node_modules/jiti/lib/jiti-cli.mjs');
  const output = await finish(runNode([jiti, 'register.ts'], inProject));
  const id = /enqueued (\S+)/.exec(output)?.[1] ?? '';
  await relay.says(`welcome ada@example.com: message ${id}, try 1`);

  expect(await (await fetch(serving.page)).text()).toContain('<title>Waybill</title>');
  const [, command = ''] = /^with a token: waybill (.*)$/.exec(serving.login) ?? [];
  const adding = command.replace('NAME', 'alice').split(' ');
  expect(page).toContain(`npx waybill ${adding.join(' ')}`);
  const token = (await finish(startCli(adding, inProject))).trim();
  const list = `${serving.page}api/messages`;
  expect(await fetch(list)).toMatchObject({ status: 401 });
  const response = await fetch(list, { headers: { authorization: `Bearer ${token}` } });
  expect(await response.text()).toContain(id);

  relay.process.kill('SIGINT');
  await finish(relay);
  const { rows } = await db.query(
    'SELECT status FROM outbox.message_status WHERE message_id = $1',
    [id],
  );
  expect(rows).toEqual([{ status: 'delivered' }]);
});

test('N14 P14 the alert thresholds of a relay are stored in the database', async () => {
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  const relay = startCli(['start', '--no-server', '--config', example('alerts.config.mjs')], {
    environment: { ...environment, ALERT_SECRET: secret },
  });
  await relay.says('relay_started');
  const { rows } = await db.query(
    `SELECT alert, threshold::float8 FROM outbox.alerts() WHERE alert IN ('waiting', 'average_delivery_seconds', 'retrying') ORDER BY alert`,
  );
  expect(rows).toEqual([
    { alert: 'average_delivery_seconds', threshold: 30 },
    { alert: 'retrying', threshold: null },
    { alert: 'waiting', threshold: 20_000 },
  ]);
  relay.process.kill('SIGTERM');
  await finish(relay);
});

test('C7 a drain behind an HTTP route delivers what is due when it is called', async () => {
  await produce();
  const ask = `
    const { POST } = await import(${JSON.stringify(pathToFileURL(example('drain-handler.mjs')).href)});
    const headers = { authorization: 'Bearer ' + process.env.DRAIN_TOKEN };
    const response = await POST(new Request('http://localhost/drain', { method: 'POST', headers }));
    console.log(response.status, JSON.stringify(await response.json()));
  `;
  const output = await finish(
    runNode(['--input-type=module', '-e', ask], {
      environment: { ...environment, DRAIN_TOKEN: 'long-enough-to-be-a-token' },
    }),
  );
  expect(output).toContain('welcome ada@example.com');
  expect(output).toContain('200 {"processed":1,"succeeded":1');
});

test('M11 a relay in a separate process delivers and stops at SIGTERM', async () => {
  const relay = runNode([example('relay.mjs')], { environment });
  await waitFor(async () => (await db.query('SELECT FROM outbox.listeners')).rowCount === 1, {
    what: 'the relay to listen',
  });
  await produce();
  await relay.says('welcome ada@example.com');
  relay.process.kill('SIGTERM');
  await finish(relay);
});

test.each([
  ['a processor', 'indexed', () => runNode([example('stream.mjs')], { environment })],
  [
    'a processor with partitions',
    'indexed',
    () => runNode([example('stream-partitions.mjs')], { environment }),
  ],
  [
    'a destination',
    'stored',
    () => startCli(['start', '--config', example('stream.config.mjs')], { environment }),
  ],
])('N4 %s that reads the log gets what a producer committed', async (_what, verb, start) => {
  await produce();
  const reader = start();
  await reader.says(`${verb} ada@example.com`);
  reader.process.kill('SIGTERM');
  await finish(reader);
});

test('N16 a processor that lives for seconds reads what is there, and ends', async () => {
  await produce();
  const { code, stdout } = await runNode([example('stream-drain.mjs')], { environment }).ended();
  expect(code).toBe(0);
  expect(stdout).toContain('indexed ada@example.com');
  expect(stdout).toContain('finished: true');
});

test.each([
  'destinations.config.mjs',
  'kafka.config.mjs',
  'nats.config.mjs',
  'rabbitmq.config.mjs',
  'webhook.config.mjs',
  'egress.config.mjs',
])(
  'every destination of the examples can be configured, and a drain finds nothing to do: %s',
  async (config) => {
    const secret = `whsec_${randomBytes(32).toString('base64')}`;
    const { cert, key } = tlsFiles();
    const command = startCli(['drain', '--config', example(config), '--json'], {
      environment: {
        ...environment,
        PARTNER_SECRET: secret,
        PARTNER_SECRET_OLD: secret,
        KAFKA_PASSWORD: secret,
        EGRESS_PROXY: 'http://user:password@proxy.example.com:3128',
        BANK_CERT: cert,
        BANK_KEY: key,
        EGRESS_CERT: cert,
        EGRESS_KEY: key,
        ERP_PASSWORD: secret,
        CRM_CLIENT_SECRET: secret,
      },
    });
    expect(JSON.parse(await finish(command))).toMatchObject({ processed: 0, finished: true });
  },
);

test('P2 the keys of the examples arrive in order, each with its previous sequence', async () => {
  const config = example('keys.config.mjs');
  const drain = async () => finish(startCli(['drain', '--config', config], { environment }));
  await drain();
  await db.query(
    `SELECT outbox.enqueue('payment.made', key => 'account-1') FROM generate_series(1, 3)`,
  );
  const output = await drain();
  expect(output.match(/booking .*/g)).toEqual([
    'booking 1 of account-1, after 0',
    'booking 2 of account-1, after 1',
    'booking 3 of account-1, after 2',
  ]);
});

test('N1 the watch of the examples makes messages, which the same drain delivers', async () => {
  await db.query(`CREATE TABLE cataloguing_jobs
    (job_id bigint PRIMARY KEY, organization_id text, status text)`);
  const config = example('watches.config.mjs');
  const drain = async () => finish(startCli(['drain', '--config', config], { environment }));
  await drain();
  await db.query(`INSERT INTO cataloguing_jobs VALUES (7, 'acme', 'new')`);
  await db.query(`UPDATE cataloguing_jobs SET status = 'done'`);
  const output = await drain();
  expect(output).toContain('created: job 7 of acme is new');
  expect(output).toContain('status_changed: job 7 of acme is done');
});

test('a configuration in TypeScript is found and loaded where the package is installed', async () => {
  const project = temporaryDirectory();
  mkdirSync(path.join(project, 'node_modules'));
  symlinkSync(process.cwd(), path.join(project, 'node_modules/waybill'), 'dir');
  copyFileSync(example('waybill.config.mjs'), path.join(project, 'waybill.config.ts'));
  const drain = async () => finish(startCli(['drain'], { environment, cwd: project }));
  // the first run defines the routes
  await drain();
  await produce();
  expect(await drain()).toContain('welcome ada@example.com');
});

test('typed events of the examples arrive in both versions, and an invalid payload is refused', async () => {
  const config = example('events.config.ts');
  const drain = async () => finish(startCli(['drain', '--config', config], { environment }));
  await drain();
  const jiti = path.resolve('node_modules/jiti/lib/jiti-cli.mjs');
  const output = await finish(runNode([jiti, example('events-producer.ts')], { environment }));
  expect(output).toContain('registered ada@example.com');
  expect(output).toContain('payload.email of "user.registered" is refused by its schema');
  const delivered = await drain();
  expect(delivered.match(/^welcome .*/gm)?.toSorted()).toEqual([
    'welcome ada@example.com',
    expect.stringMatching(/^welcome ada@example\.com, registered at \d{4}-\d\d-\d\dT/),
  ]);
});

test('the document and the list of the typed events of the examples match the page', async () => {
  const config = example('events.config.ts');
  const page = readFileSync('docs/guides/typed-events.md', 'utf8');
  const list = await finish(startCli(['events', 'list', '--config', config]));
  expect(page).toContain(list);
  const document = await finish(startCli(['events', 'asyncapi', '--config', config]));
  expect(JSON.parse(document)).toMatchObject({
    channels: { 'user.registered': {}, 'user.registered.v2': {} },
  });
});

test('an application adds an endpoint for a customer, and removes it', async () => {
  const WAYBILL_SECRET_KEY = randomBytes(32).toString('base64');
  const program = runNode([example('endpoints.mjs')], {
    environment: { ...environment, WAYBILL_SECRET_KEY },
  });
  const output = await finish(program);
  expect(output).toMatch(/added ep_\w+, whose secret begins with whsec_/);
  expect(output).toContain('enabled: true, signs with 1 secret');
  expect(output).toMatch(/the token wbe_… ends at 2/);
});
