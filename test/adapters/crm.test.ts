// The CRM's workers of examples/crm on a real Kafka, with the real kafkajs: the program for cron, and the edge function
// under the real Deno, which knows only the API's address, and calls the outbox's functions by rpc with the service
// role's key.

import { randomUUID } from 'node:crypto';
import { copyFileSync, existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { runNode, runProgram, temporaryDirectory } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { kafkaUnavailable, startKafka } from '../support/kafka-broker.js';
import type { KafkaBroker } from '../support/kafka-broker.js';
import { createTopics, readTopic } from '../support/kafka-client.js';
import { findPgbouncer } from '../support/pgbouncer.js';
import { keyOf } from '../support/postgrest.js';
import { makeSupabase } from '../support/supabase.js';
import type { Supabase } from '../support/supabase.js';
import { waitFor } from '../support/wait.js';
import { librariesMissing } from './installed.js';
import { denoFlags, programOf } from './runtime-programs.js';

const deno = programOf('@deno', 'deno');
const pgbouncer = findPgbouncer() ?? '';
const examples = path.resolve('test/adapters/generated/examples/crm');
const tenant = randomUUID();

function unavailable(): string | null {
  if (!existsSync('test/adapters/node_modules/kafkajs'))
    return 'kafkajs is not installed: npm ci --prefix test/adapters';
  return librariesMissing() ?? kafkaUnavailable();
}
const reason = unavailable();
if (reason !== null) {
  if (process.env['CI']) throw new Error(reason);
  console.warn(`The tests of the CRM's Kafka workers are left out: ${reason}.`);
}

async function installCrm(): Promise<Supabase> {
  const supabase = await makeSupabase();
  await supabase.waybill('migrate', 'up');
  await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
  await supabase.query(readFileSync('examples/crm/schema.sql', 'utf8'));
  return supabase;
}

/** Rows of one topic, the oldest first. */
async function insert(
  supabase: Supabase,
  topic: string,
  count: number,
  value = '',
): Promise<string[]> {
  const { rows } = await supabase.query<{ id: string }>(
    `INSERT INTO public.outbox (tenant_id, topic, payload, created_at)
     SELECT $1, $2, jsonb_build_object('n', n, 'value', $4::text), now() - (1000 - n) * interval '1 minute'
       FROM generate_series(1, $3::int) n RETURNING id`,
    [tenant, topic, count, value],
  );
  return rows.map(({ id }) => id);
}

async function statusOf(supabase: Supabase, ids: string[]) {
  const { rows } = await supabase.query<{ status: string; error: string | null; count: number }>(
    `SELECT status, last_error AS error, count(*)::int AS count FROM outbox.message_status
      WHERE message_id = ANY ($1) GROUP BY 1, 2 ORDER BY 1, 2`,
    [ids],
  );
  return rows;
}

describe.skipIf(reason !== null)('the CRM on Kafka', { timeout: 120_000 }, () => {
  let broker: KafkaBroker;
  let brokers: string;
  beforeAll(async () => {
    broker = await startKafka();
    brokers = `${broker.direct.host}:${broker.direct.port}`;
    await createTopics(broker.direct, {
      'crm.contact.created': {},
      'crm.contact.merged': { 'max.message.bytes': '5000' },
      'crm.contact.noted': {},
    });
  }, 90_000);
  afterAll(() => broker?.stop(), 90_000);

  it('C8 C12 C6 the worker produces batches, and keeps each row’s own success or failure', async () => {
    const supabase = await installCrm();
    const ids = await insert(supabase, 'contact.created', 120);
    const missing = await insert(supabase, 'contact.unknown', 2);
    // more than the topic takes
    const large = await insert(supabase, 'contact.merged', 1, 'x'.repeat(10_000));
    const merged = await insert(supabase, 'contact.merged', 3);
    const login = `crm_worker_${randomUUID().slice(0, 8)}`;
    await supabase.query(`CREATE ROLE ${login} LOGIN IN ROLE service_role`);
    const { code, stdout, stderr } = await runNode([path.join(examples, 'kafka-worker.mjs')], {
      environment: { DATABASE_URL: supabase.urlOf(login), KAFKA_BROKERS: brokers },
    }).ended();
    expect({ code, stderr }).toEqual({ code: 1, stderr: '' });
    const report = JSON.parse(stdout) as Record<string, number>;
    expect(report['delivered']).toBe(123);
    expect(report['failed']).toBeGreaterThanOrEqual(3);

    const arrived = await readTopic(broker.direct, 'crm.contact.created');
    const order = arrived.map(({ headers }) => headers['waybill-id']);
    // in order; a batch that was refused in part may have been sent again
    expect([...new Set(order)]).toEqual(ids);
    expect(arrived[0]).toMatchObject({
      key: tenant,
      value: '{"n":1,"value":""}',
    });
    const others = await readTopic(broker.direct, 'crm.contact.merged');
    expect(new Set(others.map(({ headers }) => headers['waybill-id']))).toEqual(new Set(merged));
    expect(await statusOf(supabase, [...ids, ...merged])).toEqual([
      { status: 'delivered', error: null, count: 123 },
    ]);
    expect(await statusOf(supabase, large)).toMatchObject([
      { status: 'pending', error: expect.stringMatching(/larger than|too large/i) as unknown },
    ]);
    expect(await statusOf(supabase, missing)).toMatchObject([
      { status: 'pending', count: 2, error: expect.stringMatching(/topic/i) as unknown },
    ]);
  });

  it.skipIf(deno === undefined || pgbouncer === '')(
    'C7 C8 C12 the edge function drains by rpc, for callers with the service role’s key',
    async () => {
      const supabase = await installCrm();
      const api = await supabase.startApi(pgbouncer, ['public', 'app']);
      const port = await freePort();
      // as the README says
      copyFileSync(path.join(examples, 'drain-function.mjs'), path.join(examples, 'index.ts'));
      const server = runProgram(deno ?? '', [...denoFlags, path.join(examples, 'index.ts')], {
        environment: {
          DENO_SERVE_ADDRESS: `tcp:127.0.0.1:${port}`,
          DENO_DIR: temporaryDirectory(),
          DENO_NO_UPDATE_CHECK: '1',
          SUPABASE_URL: await api.listen(),
          SUPABASE_SERVICE_ROLE_KEY: keyOf('service_role'),
          KAFKA_BROKERS: brokers,
        },
      });
      const drain = async (key: string, method = 'POST') => {
        const response = await fetch(`http://127.0.0.1:${port}/`, {
          method,
          headers: { authorization: `Bearer ${key}` },
        });
        return { status: response.status, body: (await response.json()) as object };
      };
      const idle = await waitFor(
        async () => {
          if (server.process.exitCode !== null) throw new Error(server.stderr);
          return drain(keyOf('service_role')).catch(() => undefined);
        },
        { what: 'an answer', timeoutMs: 40_000 },
      );
      expect(idle).toEqual({ status: 200, body: { processed: 0, delivered: 0, failed: 0 } });

      const ids = await insert(supabase, 'contact.noted', 230);
      for (const key of [keyOf('anon'), keyOf('authenticated'), 'wrong', ''])
        expect(await drain(key)).toMatchObject({ status: 401 });
      expect(await drain(keyOf('service_role'), 'GET')).toMatchObject({ status: 405 });
      // two at once share the rows
      const both = await Promise.all([drain(keyOf('service_role')), drain(keyOf('service_role'))]);
      expect(both.map(({ status }) => status)).toEqual([200, 200]);
      const sum = both
        .map(({ body }) => (body as { delivered: number }).delivered)
        .reduce((a, b) => a + b);
      expect(sum).toBe(230);
      const arrived = await readTopic(broker.direct, 'crm.contact.noted');
      expect(arrived).toHaveLength(230);
      expect(new Set(arrived.map(({ headers }) => headers['waybill-id']))).toEqual(new Set(ids));
      expect(await statusOf(supabase, ids)).toEqual([
        { status: 'delivered', error: null, count: 230 },
      ]);

      // without Kafka nothing is claimed
      const more = await insert(supabase, 'contact.noted', 2);
      await broker.kill();
      expect(await drain(keyOf('service_role'))).toMatchObject({ status: 503 });
      expect(await statusOf(supabase, more)).toEqual([
        { status: 'pending', error: null, count: 2 },
      ]);
    },
  );
});
