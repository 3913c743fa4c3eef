// OpenTelemetry tracing, if the application has the package `@opentelemetry/api`. Enqueueing makes a `create` span,
// whose context travels with the message; every delivery makes a `send` span, linked to it. The context is always
// written in W3C format, whatever propagator is configured, because destinations pass it on.

import { createRequire } from 'node:module';

import type * as OpenTelemetry from '@opentelemetry/api';

import { errorText } from '../core/errors.js';
import type { ClaimedMessage } from '../core/claimed-message.js';
import { traceOf } from '../core/cloud-event.js';
import type { Enqueued, Message } from '../core/message.js';
import { retry } from '../core/outcome.js';
import type { Outcome } from '../core/outcome.js';
import { version } from '../core/version.js';

type Api = typeof OpenTelemetry;
type Span = OpenTelemetry.Span;

type Telemetry = {
  readonly api: Api;
  readonly tracer: OpenTelemetry.Tracer;
  /** The no-op provider, in use until the application sets up its own. */
  readonly standIn: OpenTelemetry.TracerProvider;
};

let loaded: Telemetry | null | undefined;

/** Loaded once, on first use; all copies of the package share the setup. */
function telemetry(): Telemetry | null {
  if (loaded !== undefined) return loaded;
  try {
    const api = createRequire(import.meta.url)('@opentelemetry/api') as Api;
    const standIn = new api.ProxyTracerProvider().getDelegate();
    loaded = { api, tracer: api.trace.getTracer('waybill', version), standIn };
  } catch {
    loaded = null;
  }
  return loaded;
}

/** Without an SDK, spans go nowhere and still cost time for every delivery. */
function isSetUp({ api, standIn }: Telemetry): boolean {
  const provider = api.trace.getTracerProvider();
  return !(provider instanceof api.ProxyTracerProvider && provider.getDelegate() === standIn);
}

/** Runs `insert` with messages that each carry the context of a new span; a message that has a context keeps it. */
export async function traceCreation(
  messages: readonly Message[],
  insert: (messages: readonly Message[]) => Promise<Enqueued[]>,
): Promise<Enqueued[]> {
  const found = telemetry();
  if (found === null) return insert(messages);
  const spans = messages.map((message) => startCreation(found, message));
  try {
    const enqueued = await insert(
      messages.map((message, index) => withContext(found, message, spans[index])),
    );
    spans.forEach((span, index) => {
      const { id, duplicate } = enqueued[index] ?? {};
      if (id !== undefined) span?.setAttribute('messaging.message.id', id);
      if (duplicate) span?.setAttribute('waybill.duplicate', true);
    });
    return enqueued;
  } catch (error) {
    for (const span of spans) {
      span?.recordException(error as Error);
      span?.setStatus({ code: found.api.SpanStatusCode.ERROR, message: errorText(error) });
    }
    throw error;
  } finally {
    for (const span of spans) span?.end();
  }
}

/** The spans of one call of a destination. */
export type SendTrace = {
  /** Runs the call; for a single message, spans made inside it become children of its span. */
  run<T>(deliver: () => T): T;
  end(index: number, outcome: Outcome): void;
};

export function traceSend(
  destination: string,
  messages: readonly ClaimedMessage[],
): SendTrace | undefined {
  const found = telemetry();
  if (found === null || !isSetUp(found)) return undefined;
  const { api } = found;
  const spans = messages.map((message) => startSend(found, destination, message));
  const [only] = spans;
  const context =
    only !== undefined && spans.length === 1
      ? api.trace.setSpan(api.ROOT_CONTEXT, only)
      : api.ROOT_CONTEXT;
  return {
    run: (deliver) => api.context.with(context, deliver),
    end(index, outcome) {
      const span = spans[index];
      span?.setAttribute('waybill.outcome', outcome.kind);
      if ('code' in outcome) {
        span?.setAttribute('error.type', outcome.code);
        span?.setStatus({
          code: api.SpanStatusCode.ERROR,
          message: outcome.message ?? outcome.code,
        });
      }
      span?.end();
    },
  };
}

/** Traces a call that returns its outcomes. */
export async function tracedSend(
  destination: string,
  messages: readonly ClaimedMessage[],
  deliver: () => Promise<readonly Outcome[]>,
): Promise<readonly Outcome[]> {
  const trace = traceSend(destination, messages);
  if (trace === undefined) return deliver();
  try {
    const outcomes = await trace.run(deliver);
    outcomes.forEach((outcome, index) => trace.end(index, outcome));
    return outcomes;
  } catch (error) {
    const outcome = retry({ code: 'thrown', message: errorText(error) });
    messages.forEach((_message, index) => trace.end(index, outcome));
    throw error;
  }
}

/** No span for an invalid message, which will be refused, nor for one that has a context already. */
function startCreation({ api, tracer }: Telemetry, message: Message): Span | undefined {
  const { topic, headers = {} } = (message ?? {}) as Partial<Message>;
  if (typeof topic !== 'string' || !isPlain(headers) || 'traceparent' in headers) return undefined;
  return tracer.startSpan(`create ${topic}`, {
    kind: api.SpanKind.PRODUCER,
    attributes: {
      'messaging.system': 'waybill',
      'messaging.operation.type': 'create',
      'messaging.operation.name': 'enqueue',
      'messaging.destination.name': topic,
    },
  });
}

function withContext({ api }: Telemetry, message: Message, span: Span | undefined): Message {
  const context = span?.spanContext();
  // without an SDK, spans have no valid context
  if (context === undefined || !api.isSpanContextValid(context)) return message;
  const flags = context.traceFlags.toString(16).padStart(2, '0');
  const tracestate = context.traceState?.serialize();
  const trace = {
    traceparent: `00-${context.traceId}-${context.spanId}-${flags}`,
    ...(tracestate && { tracestate }),
  };
  return { ...message, headers: { ...message.headers, ...trace } };
}

/** Starts a root span: a span in which the relay happens to run is unrelated. */
function startSend(found: Telemetry, destination: string, message: ClaimedMessage): Span {
  const created = contextOf(found, message);
  return found.tracer.startSpan(
    `send ${destination}`,
    {
      kind: found.api.SpanKind.CLIENT,
      attributes: {
        'messaging.system': 'waybill',
        'messaging.operation.type': 'send',
        'messaging.operation.name': 'send',
        'messaging.destination.name': destination,
        'messaging.message.id': message.id,
        'waybill.topic': message.topic,
        'waybill.tries': message.tries,
      },
      links: created === undefined ? [] : [{ context: created }],
    },
    found.api.ROOT_CONTEXT,
  );
}

/** Headers can hold any text: an invalid trace context makes no link. */
function contextOf(
  { api }: Telemetry,
  message: ClaimedMessage,
): OpenTelemetry.SpanContext | undefined {
  const { traceparent = '', tracestate } = traceOf(message);
  const [, traceId = '', spanId = '', flags = ''] =
    /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-|$)/.exec(traceparent) ?? [];
  const context = {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags || '0', 16),
    isRemote: true,
    ...(tracestate !== undefined && { traceState: api.createTraceState(tracestate) }),
  };
  return api.isSpanContextValid(context) ? context : undefined;
}

function isPlain(headers: unknown): headers is Record<string, unknown> {
  return typeof headers === 'object' && headers !== null && !(Symbol.iterator in headers);
}
