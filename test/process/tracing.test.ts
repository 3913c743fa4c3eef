// OpenTelemetry with its real SDK: the span of an enqueue, the context that travels with the message, and the spans of
// its deliveries. Without the SDK nothing changes.

import { randomUUID } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { SpanKind, SpanStatusCode, context, createTraceState, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import type { Message } from '../../src/core/message.js';
import { delivered, reject, retry } from '../../src/core/outcome.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { traceSend } from '../../src/telemetry/tracing.js';
import { claimedMessage } from '../support/claimed-message.js';
import { runNode, temporaryDirectory } from '../support/cli.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { send, sendOne, startRelay, untilEnded } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const exporter = new InMemorySpanExporter();
const tracer = trace.getTracer('test');

const spansNamed = (name: string): ReadableSpan[] =>
  exporter.getFinishedSpans().filter((span) => span.name === name);

async function headersOf(id: string): Promise<Record<string, string> | null> {
  const { rows } = await db.query<{ headers: Record<string, string> | null }>(
    `SELECT headers FROM ${db.quoted}.messages WHERE id = $1`,
    [id],
  );
  return only(rows).headers;
}

function traceparentOf(span: ReadableSpan): string {
  const { traceId, spanId } = span.spanContext();
  return `00-${traceId}-${spanId}-01`;
}

it('the package alone, without an SDK, changes nothing', async () => {
  const id = await sendOne(db, { topic: 'quiet', headers: { a: 'b' } });
  expect(await headersOf(id)).toEqual({ a: 'b' });
  expect(await headersOf(await sendOne(db, { topic: 'quiet' }))).toBeNull();
});

it('the package alone, without an SDK, costs a delivery no span', () => {
  const message = claimedMessage({ id: randomUUID() });
  expect(traceSend('quiet', [message])).toBeUndefined();
});

describe('with an SDK', () => {
  beforeAll(() => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    trace.setGlobalTracerProvider(
      new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
    );
  });
  afterAll(() => {
    trace.disable();
    context.disable();
  });
  beforeEach(() => exporter.reset());

  it('a call of a destination is traced', () => {
    expect(traceSend('loud', [claimedMessage({ id: randomUUID() })])).toBeDefined();
  });

  it('an enqueue is a create span below the active one, and its context is stored with the message', async () => {
    const { id, parent } = await tracer.startActiveSpan('request', async (span) => {
      const sent = await sendOne(db, { topic: 'user.registered', headers: { a: 'b' } });
      span.end();
      return { id: sent, parent: span.spanContext() };
    });
    const span = only(spansNamed('create user.registered'));
    expect(span.kind).toBe(SpanKind.PRODUCER);
    expect(span.parentSpanContext?.spanId).toBe(parent.spanId);
    expect(span.spanContext().traceId).toBe(parent.traceId);
    expect(span.attributes).toEqual({
      'messaging.system': 'waybill',
      'messaging.operation.type': 'create',
      'messaging.operation.name': 'enqueue',
      'messaging.destination.name': 'user.registered',
      'messaging.message.id': id,
    });
    expect(await headersOf(id)).toEqual({ a: 'b', traceparent: traceparentOf(span) });
  });

  it('each message of enqueueMany has a span of its own, in order', async () => {
    const ids = await send(db, [{ topic: 'first' }, { topic: 'second' }]);
    const [first, second] = [only(spansNamed('create first')), only(spansNamed('create second'))];
    expect([first, second].map((span) => span.attributes['messaging.message.id'])).toEqual(ids);
    expect(await headersOf(ids[1] ?? '')).toEqual({ traceparent: traceparentOf(second) });
  });

  it('the trace state travels too', async () => {
    const parent = {
      traceId: '1'.repeat(32),
      spanId: '2'.repeat(16),
      traceFlags: 1,
      traceState: createTraceState('vendor=value'),
    };
    const id = await context.with(trace.setSpanContext(context.active(), parent), () =>
      sendOne(db, { topic: 'stated' }),
    );
    expect(await headersOf(id)).toMatchObject({ tracestate: 'vendor=value' });
    const link = only((await dispatched(id, 'stated')).links);
    expect(link.context.traceState?.get('vendor')).toBe('value');
  });

  it('a context from the caller is kept, and no span is made', async () => {
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    const id = await sendOne(db, { topic: 'given', headers: { traceparent } });
    expect(await headersOf(id)).toEqual({ traceparent });
    expect(spansNamed('create given')).toEqual([]);
    const { context: linked } = only((await dispatched(id, 'given')).links);
    expect(linked).toMatchObject({ traceId: 'a'.repeat(32), spanId: 'b'.repeat(16) });
  });

  it('an enqueue that fails ends its span with an error and does not change the caller’s message', async () => {
    const message = { topic: 'broken', key: '' };
    await expect(sendOne(db, message)).rejects.toThrow(/key/);
    const span = only(spansNamed('create broken'));
    expect(span.status.code).toBe(SpanStatusCode.ERROR);
    expect(span.events).toMatchObject([{ name: 'exception' }]);
    expect(message).toEqual({ topic: 'broken', key: '' });
  });

  it.each([
    [null],
    [{ topic: 7 }],
    [{ topic: 'a', headers: new Map() }],
    [{ topic: 'a', headers: 7 }],
  ])('an invalid message is refused as without tracing: %j', async (message) => {
    const outbox = createOutbox({ schema: db.schema });
    await expect(
      db.inTransaction((client) => outbox.enqueue(client, message as unknown as Message)),
    ).rejects.toMatchObject({ code: 'message_refused' });
    expect(exporter.getFinishedSpans()).toEqual([]);
  });

  it('a duplicate is marked on its span', async () => {
    const message = { topic: 'once', dedupeKey: 'k' };
    await sendOne(db, message);
    await sendOne(db, message);
    expect(spansNamed('create once').map((span) => span.attributes['waybill.duplicate'])).toEqual([
      undefined,
      true,
    ]);
  });

  /** Delivers the pending message of this topic with its own relay; returns the span. */
  async function dispatched(id: string, topic: string): Promise<ReadableSpan> {
    // the message was enqueued without a route: route it now
    const relay = await startRelay(db, { destinations: { [topic]: handler(() => {}) } });
    await db.query(`SELECT ${db.quoted}.route_unrouted()`);
    const find = (): ReadableSpan | undefined =>
      spansNamed(`send ${topic}`).find((span) => span.attributes['messaging.message.id'] === id);
    const span = await waitFor(find, { what: `the span of ${topic}` });
    await relay.stop();
    return span;
  }

  it('a delivery is a send span in its own trace, linked to the create span; spans of the handler are its children', async () => {
    const relay = await tracer.startActiveSpan('start of the application', (span) => {
      span.end();
      return startRelay(db, {
        destinations: {
          traced: handler((message) => {
            tracer.startSpan(`work for ${message.id}`).end();
          }),
        },
      });
    });
    const id = await sendOne(db, { topic: 'traced' });
    await untilEnded(db, 'traced');
    const created = only(spansNamed('create traced'));
    const span = await waitFor(() => spansNamed('send traced')[0], { what: 'the span' });
    expect(span.kind).toBe(SpanKind.CLIENT);
    expect(span.parentSpanContext).toBeUndefined();
    expect(span.links.map((link) => link.context)).toMatchObject([
      { traceId: created.spanContext().traceId, spanId: created.spanContext().spanId },
    ]);
    expect(span.attributes).toEqual({
      'messaging.system': 'waybill',
      'messaging.operation.type': 'send',
      'messaging.operation.name': 'send',
      'messaging.destination.name': 'traced',
      'messaging.message.id': id,
      'waybill.topic': 'traced',
      'waybill.tries': 1,
      'waybill.outcome': 'delivered',
    });
    expect(span.status.code).toBe(SpanStatusCode.UNSET);
    const work = only(spansNamed(`work for ${id}`));
    expect(work.parentSpanContext?.spanId).toBe(span.spanContext().spanId);
    await relay.stop();
  });

  it('each try and each message of a batch has its own outcome', async () => {
    await startRelay(db, {
      destinations: {
        batches: batchHandler(
          (messages) => {
            const outcomes = messages.map(({ tries, payload }) => {
              if (payload === 'never') return reject({ code: 'bad', message: 'no good' });
              return tries === 1 ? retry({ code: 'later' }) : delivered();
            });
            return Promise.resolve(outcomes);
          },
          { retry: { delaysMs: [1, 1] } },
        ),
      },
    });
    const [never = '', twice = ''] = await send(db, [
      { topic: 'batches', payload: 'never' },
      { topic: 'batches', payload: 'twice' },
    ]);
    await untilEnded(db, 'batches');
    await waitFor(() => spansNamed('send batches').length === 3, { what: 'three spans' });
    const of = (id: string) =>
      spansNamed('send batches')
        .filter((span) => span.attributes['messaging.message.id'] === id)
        .map(({ attributes, status }) => [
          attributes['waybill.tries'],
          attributes['waybill.outcome'],
          attributes['error.type'],
          status,
        ]);
    const error = SpanStatusCode.ERROR;
    expect(of(never)).toEqual([[1, 'reject', 'bad', { code: error, message: 'no good' }]]);
    expect(of(twice)).toEqual([
      [1, 'retry', 'later', { code: error, message: 'later' }],
      [2, 'delivered', undefined, { code: SpanStatusCode.UNSET }],
    ]);
  });

  it.each([
    ['one by one', handler(() => {}, { mode: 'stream' })],
    ['in batches', batchHandler(async () => {}, { mode: 'stream' })],
  ])('a destination that reads the log is traced too, %s', async (_how, destination) => {
    const name = `log-${Math.random().toString(36).slice(2, 8)}`;
    await startRelay(db, { destinations: { [name]: destination } });
    const id = await sendOne(db, { topic: name });
    const span = await waitFor(() => spansNamed(`send ${name}`)[0], { what: 'the span' });
    expect(span.attributes).toMatchObject({
      'messaging.message.id': id,
      'waybill.outcome': 'delivered',
    });
    expect(span.links).toHaveLength(1);
  });

  it('a stored context that is invalid makes no link', async () => {
    const id = await sendOne(db, { topic: 'odd', headers: { traceparent: 'hello' } });
    expect((await dispatched(id, 'odd')).links).toEqual([]);
  });
});

it('without the package, messages are enqueued and delivered as usual', async () => {
  const directory = temporaryDirectory();
  for (const name of ['dist', 'sql', 'package.json'])
    cpSync(name, path.join(directory, name), { recursive: true });
  mkdirSync(path.join(directory, 'node_modules'));
  for (const name of readdirSync('node_modules').filter((each) => each !== '@opentelemetry'))
    symlinkSync(path.resolve('node_modules', name), path.join(directory, 'node_modules', name));
  const from = (file: string) => JSON.stringify(pathToFileURL(path.join(directory, file)).href);
  const script = `
    import { createRequire } from 'node:module';
    import { createOutbox, createRelay, handler } from ${from('dist/index.js')};
    import pg from ${JSON.stringify(import.meta.resolve('pg'))};
    try { createRequire(${from('dist/index.js')})('@opentelemetry/api'); console.log('it is there'); } catch {}
    const database = { url: ${JSON.stringify(db.url)}, schema: ${JSON.stringify(db.schema)} };
    let arrived;
    const done = new Promise((resolve) => (arrived = resolve));
    const relay = createRelay({
      database,
      destinations: { plain: handler((message) => arrived(message)) },
      routes: [{ topic: 'plain', to: 'plain' }],
    });
    await relay.start();
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    const outbox = createOutbox({ schema: database.schema });
    const { id } = await outbox.enqueue(client, { topic: 'plain' }, { autonomous: true });
    const message = await done;
    console.log(message.id === id, message.headersText);
    await client.end();
    await relay.stop();
  `;
  const child = runNode(['--input-type=module', '-e', script], { cwd: directory });
  expect(await child.ended()).toEqual({ code: 0, stdout: 'true null\n', stderr: '' });
});
