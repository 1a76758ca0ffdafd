import type { Cluster, Redis } from 'ioredis';

import { libraryOf } from './io.js';
import { type LimiterOptions, RateLimiter } from './limiter.js';

/**
 * A limiter on connections of its own, with the options of a client of ioredis: one server, sentinels or a cluster. The client itself
 * need not be connected (`lazyConnect`); when it is closed, the limiter asks no more.
 */
export function ioredis(client: Redis | Cluster, options?: LimiterOptions): RateLimiter {
  return new RateLimiter(libraryOf(client), options);
}
