// The cataloguing service's processor and pruner as edge functions: the real Deno serves them over HTTP, with the login
// of the service and no other rights. The work of the processor is a request to an index of the test.

import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { json } from 'node:stream/consumers';

import { beforeAll, expect, test } from 'vitest';

import {
  addJobs,
  connectService,
  installCatalogue,
  jobEvents,
  pastEvents,
  serviceUrl,
} from '../support/cataloguing.js';
import { runProgram, temporaryDirectory } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { testDatabase } from '../support/postgres.js';
import { serve } from '../support/relay-partner.js';
import { waitFor } from '../support/wait.js';
import { librariesMissing } from './installed.js';
import { denoFlags, programOf } from './runtime-programs.js';

const db = testDatabase();
const key = randomBytes(32).toString('hex');
const functions = path.resolve('test/adapters/generated/examples/cataloguing/edge');
const deno = programOf('@deno', 'deno') ?? '';
const missing = librariesMissing() !== null || deno === '';

type Event = { event_id: string; record_id: string; event_type: string };
type Read = { succeeded: number; finished: boolean; heldBy: string | null };
type Answer<Body> = { status: number; body: Body };

beforeAll(() => installCatalogue(db));

/** Serves an edge function under Deno; the result calls it. */
async function startFunction(file: string, environment: Record<string, string>) {
  const port = String(await freePort());
  const server = runProgram(deno, [...denoFlags, path.join(functions, file)], {
    environment: {
      DATABASE_URL: serviceUrl(db),
      SERVICE_KEY: key,
      PORT: port,
      DENO_DIR: temporaryDirectory(),
      DENO_NO_UPDATE_CHECK: '1',
      DO_NOT_TRACK: '1',
      ...environment,
    },
  });
  const call = async <Body>(secret = key): Promise<Answer<Body>> => {
    const response = await fetch(`http://127.0.0.1:${port}/`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}` },
    });
    return { status: response.status, body: (await response.json()) as Body };
  };
  await waitFor(
    async () => {
      if (server.process.exitCode !== null) throw new Error(server.stderr);
      const answer = await call('wrong').catch(() => undefined);
      return answer?.status === 401;
    },
    { what: 'the function to refuse a wrong key', timeoutMs: 40_000 },
  );
  return { call, kill: () => server.process.kill('SIGKILL') };
}

test.skipIf(missing)(
  'N16 N4 the processor reads on from its cursor from one invocation to the next, within its time, also after a kill',
  async () => {
    const batches: Event[][] = [];
    /** Answers a request, now or later. */
    let answer: (reply: () => void, batch: number) => void = (reply) => reply();
    const { url } = await serve((request, response) => {
      void json(request).then((events) => {
        batches.push(events as Event[]);
        answer(() => response.end(), batches.length);
      });
    });
    const app = await db.connect();
    await app.query('SET ROLE cataloguing_app');
    const jobs = await addJobs(app, 'edge', 250);

    // the second batch takes longer than the function may read
    const maxMs = 3000;
    let began = 0;
    answer = (reply, batch) => {
      const wait = batch < 2 ? 0 : Math.max(0, began + maxMs - performance.now());
      setTimeout(reply, wait);
    };
    const first = await startFunction('processor.mjs', {
      INDEX_URL: url,
      MAX_MS: String(maxMs),
      PROCESSOR_NAME: 'edge-index',
    });
    began = performance.now();
    const { status, body } = await first.call<{ read: Read }>();
    expect({ status, ...body.read }).toMatchObject({
      status: 200,
      succeeded: 200,
      finished: false,
      heldBy: null,
    });
    // the next one is killed over its batch
    let held = 0;
    answer = () => (held += 1);
    const killed = first.call().catch(() => 'killed');
    await waitFor(() => held === 1, { what: 'the third batch' });
    first.kill();
    expect(await killed).toBe('killed');

    answer = (reply) => reply();
    const second = await startFunction('processor.mjs', {
      INDEX_URL: url,
      PROCESSOR_NAME: 'edge-index',
    });
    const last = await waitFor(
      async () => {
        const report = (await second.call<{ read: Read; sent: Read }>()).body;
        return report.read.heldBy === null ? report : undefined;
      },
      { what: 'the lease of the dead function to expire', timeoutMs: 20_000 },
    );
    expect(last).toMatchObject({
      read: { succeeded: 50, finished: true },
      sent: { finished: true },
    });

    const all = batches.flat();
    expect(all, 'the killed batch came twice').toHaveLength(300);
    expect(new Set(all.map(({ record_id }) => record_id))).toEqual(new Set(jobs));
    const service = await connectService(db);
    const rows = await jobEvents(service, 'edge');
    await service.end();
    expect(new Set(all.map(({ event_id }) => event_id))).toEqual(
      new Set(rows.map(({ event_id }) => event_id)),
    );
    expect(rows.every(({ processed_at }) => processed_at !== null)).toBe(true);
  },
  120_000,
);

test.skipIf(missing)(
  'N16 N7 the pruner removes a day in each call until nothing is left, and stops when its time is over',
  async () => {
    for (const days of [10, 9, 8]) await pastEvents(db, days, days);
    const operator = await db.connect();
    await operator.query('SET ROLE waybill_operator');
    await operator.query("SELECT outbox.reset_cursor('edge-index', 'now')");
    type Report = { deleted_count: number; calls: number; finished: boolean };
    const short = await startFunction('pruner.mjs', { MAX_MS: '1' });
    expect((await short.call<Report>()).body).toMatchObject({
      deleted_count: 10,
      calls: 1,
      finished: false,
    });
    short.kill();
    const pruner = await startFunction('pruner.mjs', {});
    expect((await pruner.call<Report>()).body).toMatchObject({
      deleted_count: 17,
      calls: 3,
      finished: true,
    });
  },
  120_000,
);
