// Drain handler: a drain as a fetch function, for platforms where processes are short-lived. Mount it in Hono, Next.js,
// Deno or an edge function, and call it by cron. One drain runs at a time; concurrent requests are told so and do
// nothing.

import { createHash, timingSafeEqual } from 'node:crypto';

import { createRelay, createShardedRelay } from '../config.js';
import type { Config } from '../config.js';
import { ConfigurationError, errorText } from '../core/errors.js';
import { anything, checkOptions, text } from '../core/options.js';
import { drainLimitKinds } from '../relay/drains.js';
import type { ShardedDrainReport } from '../features/shards/relay.js';

export type DrainHandlerOptions = {
  config: Config;
  /** The secret that the caller must send: `Authorization: Bearer …`. At least 16 characters. */
  token: string;
  /** The most time for one drain. Default 50,000. */
  maxMs?: number;
  /** The most messages per destination. Default 1,000,000. */
  maxMessages?: number;
};

export function createDrainHandler(
  options: DrainHandlerOptions,
): (request: Request) => Promise<Response> {
  const { config, token, maxMs, maxMessages } = checkOptions('createDrainHandler', options, {
    config: anything<Config>(),
    token: text({ meaning: 'a token of at least 16 characters' }),
    maxMs: drainLimitKinds.maxMs,
    maxMessages: drainLimitKinds.maxMessages,
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
    if (running) return answer(409, { error: 'a drain is running already' });
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
