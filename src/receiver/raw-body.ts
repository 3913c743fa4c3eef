// Raw bodies of requests, with a limit: as bytes, because the signature covers them.

import { Buffer } from 'node:buffer';

import { RequestRefusedError } from './errors.js';
import type { RequestHeaders } from './verify.js';

/** A request of node:http or Express. */
export type NodeRequest = {
  readonly headers: RequestHeaders & Readonly<Record<string, unknown>>;
  readonly readableEnded?: boolean;
  /** Set by a body parser of Express. */
  readonly body?: unknown;
  iterator(options: { destroyOnReturn: boolean }): AsyncIterable<Uint8Array | string>;
};

export async function bodyOfNode(request: NodeRequest, maxBytes: number): Promise<Uint8Array> {
  const { body } = request;
  if (body instanceof Uint8Array) return within(maxBytes, body);
  if (typeof body === 'string') return within(maxBytes, Buffer.from(body));
  if (body !== undefined || request.readableEnded === true)
    throw new Error(
      'the body was parsed before the receiver saw it: use the receiver before express.json(), or use express.raw({ type: () => true }) for its path',
    );
  // a stream that is destroyed would take the connection with it, and the answer
  return collect(request.iterator({ destroyOnReturn: false }), maxBytes);
}

export async function bodyOfRequest(request: Request, maxBytes: number): Promise<Uint8Array> {
  if (request.bodyUsed)
    throw new Error('the body was read before the receiver saw it: pass the request unread');
  return request.body === null ? new Uint8Array() : collect(chunksOf(request.body), maxBytes);
}

async function* chunksOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function collect(
  chunks: AsyncIterable<Uint8Array | string>,
  maxBytes: number,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    const part = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    size += part.length;
    if (size > maxBytes) throw tooLong(maxBytes);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function within(maxBytes: number, body: Uint8Array): Uint8Array {
  if (body.length > maxBytes) throw tooLong(maxBytes);
  return body;
}

function tooLong(maxBytes: number): RequestRefusedError {
  return new RequestRefusedError(413, `the body has more than ${maxBytes} bytes`);
}
