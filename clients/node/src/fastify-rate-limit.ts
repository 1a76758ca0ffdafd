import type { FastifyRateLimitStoreCtor } from '@fastify/rate-limit';

import { counter, hits } from './hits.js';
import type { RateLimiter } from './limiter.js';
import { inOrder, periodMs, TEXT } from './options.js';
import type { Reply } from './replies.js';
import { hideInStore } from './http.js';

type Callback = (error: Error | null, result?: { current: number; ttl: number }) => void;

/** What @fastify/rate-limit hands to a store: the options of the plugin, and those of a route. Its types say otherwise. */
interface StoreOptions {
  continueExceeding?: boolean;
  exponentialBackoff?: boolean;
  timeWindow?: number | ((...args: never[]) => unknown);
  routeInfo?: { method?: string | string[]; url?: string };
}

/**
 * A store for @fastify/rate-limit, which decides by the number of hits and counts denied ones too: its option `ban` needs
 * them. Two options are errors, `continueExceeding` and `exponentialBackoff`, because a denial moves no window here;
 * `count=all` and `ban=1m:2m:4m` in a rule have these effects.
 */
export function rateLimitStore(limiter: RateLimiter, options: { prefix?: string } = {}): FastifyRateLimitStoreCtor {
  inOrder('rateLimitStore', options, { prefix: TEXT });
  const { prefix = 'fastify-rate-limit-' } = options;
  return class RateLimitStore {
    readonly #prefix: string;

    constructor(options: StoreOptions = {}, prefixOfRoute = prefix) {
      for (const option of ['continueExceeding', 'exponentialBackoff'] as const) {
        if (options[option]) throw new Error(`this store does not offer ${option}, see redis-ratelimit/fastify-rate-limit`);
      }
      const { timeWindow } = options;
      if (timeWindow !== undefined && typeof timeWindow !== 'function') periodMs('timeWindow', timeWindow);
      this.#prefix = prefixOfRoute;
    }

    incr(key: string, callback: Callback, timeWindow: number, _max?: number): void {
      answer(async () => limiter.check(this.#prefix + key, counter(timeWindow)), callback);
    }

    read(key: string, callback: Callback, timeWindow: number, _max?: number): void {
      answer(async () => limiter.peek(this.#prefix + key, counter(timeWindow)), callback);
    }

    child(options: object): RateLimitStore {
      const { method = '', url = '' } = (options as StoreOptions).routeInfo ?? {};
      return new RateLimitStore(options, `${this.#prefix}${method}${url}-`);
    }
  };
}

function answer(ask: () => Promise<Reply>, callback: Callback): void {
  ask().catch(hideInStore).then((reply) => callback(null, { current: hits(reply), ttl: Math.max(0, reply.resetMs) }), callback);
}
