// `waybill start` of another version with its port, each with a login that has no more than its role, and what can be
// seen and done there over HTTP.

import { writeFileSync } from 'node:fs';
import path from 'node:path';

import { expect } from 'vitest';

import { runNode } from '../../support/cli.js';
import type { Running } from '../../support/cli.js';
import type { Checkout } from './checkout.js';

export type Answer = { status: number; body: unknown; text: string };

const anHourMs = 3_600_000;

/** What the receiver takes, refuses for good (its key waits behind it), and wants again in an hour. */
const config = (root: string) => `
import { defineConfig, handler, reject, retry } from ${JSON.stringify(`${root}dist/index.js`)};
export default defineConfig({
  destinations: {
    crm: handler((message) => {
      if (message.topic === 'user.bad') return reject({ code: 'refused_by_crm' });
      if (message.topic === 'user.slow' && message.tries === 1) return retry({ code: 'crm_busy', afterMs: ${anHourMs} });
    }, { whenDead: 'block' }),
  },
  routes: [{ topic: 'user.*', to: 'crm' }, { topic: 'sign.*', to: 'crm', rollout: 'signs' }],
  server: { port: 0 },
});`;

export class Port {
  readonly #process: Running;
  readonly #url: string;
  readonly #token: string;

  private constructor(process: Running, url: string, token: string) {
    this.#process = process;
    this.#url = url;
    this.#token = token;
  }

  static async start(
    version: Checkout,
    { relayUrl, serverUrl, token }: { relayUrl: string; serverUrl: string; token: string },
  ): Promise<Port> {
    const file = path.join(version.directory, 'port.config.mjs');
    writeFileSync(file, config(version.root));
    const main = path.join(version.directory, 'dist', 'cli', 'main.js');
    const process = runNode([main, 'start', '--config', file], {
      environment: { DATABASE_URL: relayUrl, DATABASE_SERVER_URL: serverUrl },
    });
    await process.says(/"msg":"serving"/);
    const url = /"url":"(http:[^"]+)"/.exec(process.stderr + process.stdout)?.[1] ?? '';
    return new Port(process, url, token);
  }

  get log(): string {
    return this.#process.stderr + this.#process.stdout;
  }

  async stop(): Promise<void> {
    this.#process.process.kill('SIGTERM');
    expect(await this.#process.ended()).toMatchObject({ code: 0 });
  }

  async ask(method: string, route: string, body: object = {}): Promise<Answer> {
    const response = await fetch(this.#url + route, {
      method,
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': 'application/json' },
      ...(method !== 'GET' && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    const isJson = /json/.test(response.headers.get('content-type') ?? '');
    return { status: response.status, text, body: isJson ? JSON.parse(text) : text };
  }

  /** Does something that must succeed. */
  async act(route: string, body: object = {}, method = 'POST'): Promise<unknown> {
    const answer = await this.ask(method, route, body);
    expect(answer.status, `${method} ${route}: ${answer.text}`).toBe(200);
    return answer.body;
  }

  /** As the page logs in: the token becomes a cookie. */
  async logIn(): Promise<unknown> {
    const session = `${this.#url}/api/session`;
    const answer = await fetch(session, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token: this.#token }),
    });
    const cookie = answer.headers.get('set-cookie')?.split(';')[0] ?? '';
    return (await fetch(session, { headers: { cookie } })).json();
  }

  /** What each route that only reads answers, as the names of its fields. */
  async looks(messageId: string): Promise<Map<string, string[]>> {
    const { body } = await this.ask('GET', '/api/openapi.json');
    const { paths } = body as { paths: Record<string, object> };
    const read = Object.keys(paths).filter((route) => Object.hasOwn(paths[route] ?? {}, 'get'));
    const seen = new Map<string, string[]>();
    for (const route of new Set([...read, '/healthz', '/readyz', '/metrics'])) {
      if (route.includes('{job}')) continue;
      const asked = route.replace('{id}', messageId).replace('{name}', 'signs');
      const answer = await this.ask('GET', asked);
      expect(answer.status, `GET ${asked}: ${answer.text}`).toBe(200);
      seen.set(
        route,
        typeof answer.body === 'string' ? metricsIn(answer.body) : fieldsOf(answer.body),
      );
    }
    return seen;
  }
}

/** The names of all fields, by path; a list counts as all of its elements. */
function fieldsOf(body: unknown, at = ''): string[] {
  if (Array.isArray(body)) return [...new Set(body.flatMap((each) => fieldsOf(each, `${at}[]`)))];
  if (typeof body !== 'object' || body === null) return [at];
  return Object.entries(body).flatMap(([name, each]) => fieldsOf(each, `${at}.${name}`));
}

function metricsIn(text: string): string[] {
  return [...new Set([...text.matchAll(/^outbox_\w+/gm)].map(([name]) => name))];
}
