import { type Cluster, Command, type Redis } from 'ioredis';

import { serverOf } from './io.js';
import { type LimiterOptions, RateLimiter } from './limiter.js';

/** A limiter on a client of ioredis: one server, sentinels or a cluster. It honours `keyPrefix` and `scaleReads`. */
export function ioredis(client: Redis | Cluster, options?: LimiterOptions): RateLimiter {
  return new RateLimiter(serverOf(client, Command), options);
}
