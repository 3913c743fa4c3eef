// waybill/redis: the destination for Redis Streams, without the relay. Its client library is loaded when a relay opens it.

import { untilNamed } from '../until-named.js';
import { redis as makeRedis } from './redis.js';

export type { RedisMaxLength, RedisOptions } from './redis.js';

export const redis: typeof makeRedis = untilNamed(makeRedis);
