// MCP session: the Model Context Protocol over standard input and output, one JSON-RPC message a line. It offers tools
// and nothing else. Written by hand: the official SDK would add seventy packages, among them a second web server, for
// the four methods that a server of tools needs. The tests speak to it with the SDK's client.

import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

import type { Tool } from '../features/feature.js';

export type SessionOptions = {
  tools: readonly Tool[];
  version: string;
  /** For the model: what the tools are for. */
  instructions: string;
  /** The text of an error that a tool has thrown. */
  describe(error: unknown): string;
  input: Readable;
  output: Writable;
};

type Request = { id?: string | number | null; method?: unknown; params?: Record<string, unknown> };

/** The newest first; a client that asks for another version gets the newest. */
const protocolVersions = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];

const errors = { parse: -32_700, request: -32_600, method: -32_601, params: -32_602 } as const;

class ProtocolError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** Answers requests until the input ends. Requests run at the same time: a slow one does not hold up a ping. */
export async function serveTools(options: SessionOptions): Promise<void> {
  const { input, output } = options;
  const send = (message: object): void => {
    output.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  };
  const running = new Set<Promise<void>>();
  for await (const line of createInterface({ input })) {
    if (line.trim() === '') continue;
    const work = answer(line, options).then((message) => {
      if (message !== undefined) send(message);
    });
    running.add(work);
    void work.finally(() => running.delete(work));
  }
  await Promise.all(running);
}

/** The answer to one line; undefined to a notification. */
async function answer(line: string, options: SessionOptions): Promise<object | undefined> {
  let request: Request | undefined;
  try {
    request = read(line);
    const { id, method, params = {} } = request;
    if (id === undefined || typeof method !== 'string') {
      // a notification, or a response to a request, of which this server sends none
      if (id === undefined || 'result' in request || 'error' in request) return undefined;
      throw new ProtocolError(errors.request, 'the request has no method');
    }
    return { id, result: await resultOf(method, params, options) };
  } catch (error) {
    const { code, message } =
      error instanceof ProtocolError
        ? error
        : { code: errors.request, message: options.describe(error) };
    return { id: request?.id ?? null, error: { code, message } };
  }
}

function read(line: string): Request {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw new ProtocolError(errors.parse, 'the line is not JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ProtocolError(errors.request, 'give one request a line, as an object');
  return value;
}

async function resultOf(
  method: string,
  params: Record<string, unknown>,
  options: SessionOptions,
): Promise<object> {
  switch (method) {
    case 'initialize': {
      const asked = String(params['protocolVersion']);
      return {
        protocolVersion: protocolVersions.includes(asked) ? asked : protocolVersions[0],
        capabilities: { tools: {} },
        serverInfo: { name: 'waybill', version: options.version },
        instructions: options.instructions,
      };
    }
    case 'ping':
      return {};
    case 'tools/list':
      return { tools: options.tools.map(listed) };
    case 'tools/call':
      return call(params, options);
    default:
      throw new ProtocolError(errors.method, `there is no method ${method}`);
  }
}

function listed({ name, description, changes, inputSchema }: Tool): object {
  const annotations = { readOnlyHint: !changes, destructiveHint: changes, openWorldHint: false };
  return { name, description, inputSchema, annotations };
}

/** An error of the tool is a result, so that the model can read it. */
async function call(params: Record<string, unknown>, options: SessionOptions): Promise<object> {
  const { name, arguments: values } = params;
  const tool = options.tools.find((one) => one.name === name);
  if (tool === undefined)
    throw new ProtocolError(
      errors.params,
      `there is no tool ${String(name)}: use ${options.tools.map((one) => one.name).join(', ')}`,
    );
  try {
    const result = await tool.run((values ?? {}) as Record<string, unknown>);
    return { content: [{ type: 'text', text: JSON.stringify(result) }] };
  } catch (error) {
    return { content: [{ type: 'text', text: options.describe(error) }], isError: true };
  }
}
