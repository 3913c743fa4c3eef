// A drain as a fetch function, for platforms where nothing may run for long: mount it in Hono, Next.js, Deno or an
// edge function, and let cron call it. One drain at a time; who asks meanwhile is told so, and has nothing to do.

import { createHash, timingSafeEqual } from 'node:crypto';

import { createRelay, createShardedRelay } from '../config.js';
import type { Config } from '../config.js';
import { ConfigurationError, errorText } from '../errors.js';
import { anything, checkOptions, integer, text } from '../model/options.js';
import type { ShardedDrainReport } from '../relay/sharded-relay.js';

export type DrainHandlerOptions = {
  config: Config;
  /** What the caller must send: `Authorization: Bearer …`. At least 16 characters. */
  token: string;
  /** Default 50,000. */
  maxMs?: number;
  /** For each destination. Default 1,000,000. */
  maxMessages?: number;
};

export function createDrainHandler(
  options: DrainHandlerOptions,
): (request: Request) => Promise<Response> {
  const { config, token, maxMs, maxMessages } = checkOptions('createDrainHandler', options, {
    config: anything<Config>(),
    token: text({ meaning: 'a token of at least 16 characters' }),
    maxMs: integer({ min: 1, max: 3_600_000, default: 50_000 }),
    maxMessages: integer({ min: 1, max: 1_000_000_000, default: 1_000_000 }),
  });
  if (token.length < 16)
    throw new ConfigurationError(
      'createDrainHandler.token has fewer than 16 characters: take a random one, such as openssl rand -hex 32 gives',
    );
  const expected = hash(token);
  let running = false;
  return async (request) => {
    if (request.method !== 'POST') return answer(405, { error: 'send a POST' });
    const given = /^Bearer +(\S+)$/i.exec(request.headers.get('authorization') ?? '')?.[1] ?? '';
    if (!timingSafeEqual(hash(given), expected))
      return answer(401, { error: 'the token is missing or wrong: Authorization: Bearer …' });
    if (running) return answer(409, { error: 'a drain is under way' });
    running = true;
    try {
      const relay = config.shards ? createShardedRelay(config) : createRelay(config);
      const report = await relay.drain({ maxMs, maxMessages, maintain: true });
      const shards =
        'shards' in report ? Object.values(report.shards as ShardedDrainReport['shards']) : [];
      const failed = shards.some((shard) => 'error' in shard);
      return answer(failed ? 503 : 200, report);
    } catch (error) {
      return answer(503, { error: errorText(error) });
    } finally {
      running = false;
    }
  };
}

function hash(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

function answer(status: number, body: object): Response {
  return Response.json(body, { status, headers: { 'cache-control': 'no-store' } });
}
