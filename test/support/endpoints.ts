// Endpoints for tests: an encryption key, receivers that are real servers, and relays that serve only endpoints.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';

import { onTestFinished } from 'vitest';

import { createEndpoints } from '../../src/features/endpoints/endpoints.js';
import type { ShownSecret } from '../../src/features/endpoints/endpoints.js';
import type { NewEndpoint } from '../../src/features/endpoints/description.js';
import type { EndpointOptions } from '../../src/features/endpoints/options.js';
import type { TestDatabase } from './postgres.js';
import { startRelay } from './relay.js';
import type { RelaySettings, TestRelay } from './relay.js';
import { waitFor } from './wait.js';

export const testKey = randomBytes(32).toString('base64');

/** Allows the receivers of the tests, which run on this machine. */
const allowedNetworks = ['127.0.0.0/8'];
export const endpointSettings: EndpointOptions = { allowedNetworks };

export type Received = { path: string; headers: IncomingHttpHeaders; body: string; id: string };

export class Receiver {
  readonly requests: Received[] = [];
  status = 204;
  /** While this is unresolved, the receiver answers no request. */
  hold: Promise<void> | undefined;
  url = '';

  get ids(): string[] {
    return this.requests.map(({ id }) => id);
  }

  async has(id: string): Promise<Received> {
    return waitFor(() => this.requests.find((request) => request.id === id), {
      what: `message ${id} at ${this.url}`,
      timeoutMs: 20_000,
    });
  }
}

export async function startReceiver(): Promise<Receiver> {
  const receiver = new Receiver();
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      const { headers, url: path = '' } = request;
      receiver.requests.push({ path, headers, body, id: String(headers['webhook-id']) });
      void Promise.resolve(receiver.hold).then(() =>
        response.writeHead(receiver.status).end(receiver.status === 204 ? '' : 'an answer'),
      );
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  receiver.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return receiver;
}

export function endpointsOf(db: TestDatabase, secretKey = testKey) {
  return createEndpoints({ schema: db.schema, secretKey, allowedNetworks });
}

export async function addEndpoint(
  db: TestDatabase,
  endpoint: Partial<NewEndpoint> & { url: string },
): Promise<ShownSecret> {
  return endpointsOf(db).add(db.pool, { topics: ['*'], tenantId: null, ...endpoint });
}

/** A relay that serves the endpoints of the database. The key comes from the environment, as in production. */
export async function startEndpointRelay(
  db: TestDatabase,
  settings: Partial<RelaySettings> & { key?: string | null } = {},
): Promise<TestRelay> {
  const { key = testKey, ...rest } = settings;
  setKey(key);
  return startRelay(db, { destinations: {}, endpoints: endpointSettings, ...rest });
}

export function setKey(key: string | null): void {
  const before = process.env['WAYBILL_SECRET_KEY'];
  if (key === null) delete process.env['WAYBILL_SECRET_KEY'];
  else process.env['WAYBILL_SECRET_KEY'] = key;
  onTestFinished(() => {
    if (before === undefined) delete process.env['WAYBILL_SECRET_KEY'];
    else process.env['WAYBILL_SECRET_KEY'] = before;
  });
}
