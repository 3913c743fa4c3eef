// The registrations site of examples/registrations on a test's database: its SQL files, its configuration, and a receiver
// in place of n8n. Call it at the top of a file.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import { afterAll, beforeAll, beforeEach, expect, vi } from 'vitest';

import type { Config } from '../../src/config.js';
import { migrateUp } from '../../src/database/migrate.js';
import { createDrainHandler } from '../../src/server/drain-handler.js';
import type { TestDatabase } from './postgres.js';

export const folder = path.resolve('examples/registrations');

/** The text of a SQL file, with the files that psql would include, and without its settings. */
export function sqlOf(name: string): string {
  return readFileSync(path.join(folder, name), 'utf8')
    .replaceAll(/^\\ir (.*)$/gm, (_, included: string) => sqlOf(included))
    .replaceAll(/^\\set .*$/gm, '');
}

export type Body = { event: string; data: Record<string, unknown>; timestamp: string };
export type Report = { processed: number; succeeded: number; failed: number; finished: boolean };
export type OutboxRow = {
  id: string;
  event_type: string;
  aggregate_type: string;
  aggregate_id: string;
  payload: unknown;
  status: string;
  retry_count: number;
  max_retries: number;
  next_retry_at: Date | null;
  created_at: Date;
  processed_at: Date | null;
  error_message: string | null;
  error_details: { code: string; status: string; response: string } | null;
};

export type Site = {
  /** What n8n accepted. */
  readonly received: Body[];
  /** How n8n answers; 200 at the beginning of each test. */
  answer: (body: Body) => number;
  run(file: string): Promise<unknown>;
  /** Does what the site's processor does. */
  drain(): Promise<Report>;
  setRollout(change: string): Promise<void>;
  /** Rows of webhook_outbox, oldest first. */
  rows(condition?: string, values?: unknown[]): Promise<OutboxRow[]>;
};

const load = async (name: string): Promise<unknown> => import(path.join(folder, name));

/** newForEachTest: each test has a database of its own, which is prepared already. */
export function registrationsSite(db: TestDatabase, { newForEachTest = false } = {}): Site {
  const received: Body[] = [];
  const token = randomUUID();
  let post: (request: Request) => Promise<Response>;
  let stop: () => Promise<void>;
  const site: Site = {
    received,
    answer: () => 200,
    run: (file) => db.query(sqlOf(file)),
    async drain() {
      const headers = { authorization: `Bearer ${token}` };
      const response = await post(new Request('http://site/process', { method: 'POST', headers }));
      const report = (await response.json()) as Report;
      expect(response.status, JSON.stringify(report)).toBe(200);
      return report;
    },
    async setRollout(change) {
      await db.query(`SELECT outbox.set_rollout('registrations', ${change})`);
    },
    async rows(condition = 'true', values = []) {
      const { rows } = await db.query<OutboxRow>(
        `SELECT * FROM webhook_outbox WHERE ${condition} ORDER BY id`,
        values,
      );
      return rows;
    },
  };

  beforeAll(async () => {
    const { startReceiver } = (await load('receiver.mjs')) as {
      startReceiver: (
        answer: (body: Body) => number,
      ) => Promise<{ url: string; received: Body[]; stop: () => Promise<void> }>;
    };
    const n8n = await startReceiver((body) => site.answer(body));
    stop = n8n.stop;
    // the one array for both
    n8n.received.push = (...bodies) => received.push(...bodies);
    vi.stubEnv('DATABASE_URL', db.url);
    vi.stubEnv('N8N_URL', n8n.url);
    // as in processor.mjs; the configuration reads the environment, and files share their process
    const { default: config } = (await load(`waybill.config.mjs?${token}`)) as { default: Config };
    post = createDrainHandler({ config, token });
    if (newForEachTest) return;
    await migrateUp({ url: db.url });
    for (const file of ['site.sql', 'schema.sql']) await site.run(file);
    // defines the destination, the routes and the rollout
    await site.drain();
  });
  beforeEach(async () => {
    if (newForEachTest) await site.drain();
    site.answer = () => 200;
    received.length = 0;
    await site.setRollout('100');
  });
  afterAll(async () => {
    vi.unstubAllEnvs();
    await stop();
  });
  return site;
}
