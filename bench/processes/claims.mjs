// Where the processor time of a drain goes: claims.mjs BATCH. Claims and settles a whole backlog without a relay:
// claims on one connection, settles on another, so the kernel's figures for their server processes are those of the
// two statements. This process only reads the answers.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';

import { claimBatch, deliverLeases } from '../../dist/database/claims.js';
import { Database, resolveDatabaseOptions } from '../../dist/database/connection.js';
import './parent.mjs';

const batchSize = Number(process.argv[2]);
const options = resolveDatabaseOptions({ url: process.env.DATABASE_URL });
const open = (applicationName) => new Database(options, { connections: 1, applicationName });
const pidOf = async (database) =>
  (await database.query('pid', 'SELECT pg_backend_pid() AS pid'))[0].pid;

const [claiming, settling] = [open('bench claims'), open('bench settles')];
const relayId = randomUUID();
const request = {
  destinationId: Number(process.env.BENCH_DESTINATION),
  relayId,
  limit: batchSize,
  maxBytes: 64 * 1024 * 1024,
  leaseMs: 60_000,
  tenantIds: null,
  namespace: null,
  lanesFirst: false,
  afterTenant: null,
  afterLaneTenant: null,
};

async function takeBatch(scanStart) {
  const leaseId = randomUUID();
  const messages = await claimBatch(claiming, { ...request, leaseId, scanStart });
  const deliveries = messages.map(() => ({ latencyMs: 1, receipt: undefined }));
  if (messages.length > 0) await deliverLeases(settling, relayId, [{ leaseId, deliveries }]);
  const last = messages.at(-1);
  const next =
    last === undefined ? null : { availableAt: last.availableAtText, id: last.id, overlapMs: 0 };
  return { count: messages.length, next };
}

// the first calls make the plans
let { next } = await takeBatch(null);
process.send({ type: 'ready', claimPid: await pidOf(claiming), settlePid: await pidOf(settling) });
await once(process, 'message');
const before = process.cpuUsage();
let total = 0;
for (;;) {
  const batch = await takeBatch(next);
  if (batch.count === 0) break;
  total += batch.count;
  ({ next } = batch);
}
const { user, system } = process.cpuUsage(before);
process.send({ type: 'ended', total, cpuMs: (user + system) / 1000 });
await once(process, 'SIGTERM');
await Promise.all([claiming.close(), settling.close()]);
process.disconnect();
