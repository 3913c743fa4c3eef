// The CRM's worker as an edge function (Deno): the drain endpoint that pg_cron calls every minute. The caller's bearer key
// is the service role's; with the same key it calls the outbox's functions by rpc. It never connects to the database.

import { createHash, timingSafeEqual } from 'node:crypto';

import { connectKafka } from './kafka.mjs';
import { drain, overRpc } from './worker.mjs';

const url = required('SUPABASE_URL');
const key = required('SUPABASE_SERVICE_ROLE_KEY');
const brokers = required('KAFKA_BROKERS');

Deno.serve(async (request) => {
  if (!isAllowed(request.headers.get('authorization') ?? ''))
    return Response.json({ error: 'the bearer key is not the service role’s' }, { status: 401 });
  if (request.method !== 'POST')
    return Response.json({ error: `${request.method} is not POST` }, { status: 405 });
  let kafka;
  try {
    // before anything is claimed: without Kafka, nothing is
    kafka = await connectKafka(brokers);
    return Response.json(await drain(overRpc(url, key), kafka.publish));
  } catch (error) {
    console.error(error);
    return Response.json({ error: String(error) }, { status: 503 });
  } finally {
    await kafka?.close();
  }
});

/** Compares digests, so that the time tells nothing about the key. */
function isAllowed(given) {
  const digest = (text) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(`Bearer ${key}`));
}

function required(name) {
  const value = Deno.env.get(name);
  if (!value) throw new Error(`${name} is not set: add it to the secrets of the function`);
  return value;
}
