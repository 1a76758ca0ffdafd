import type { ThrottlerStorage } from '@nestjs/throttler';

import { hideInStore, seconds } from './http.js';
import type { RateLimiter } from './limiter.js';
import { inOrder, oneOf, periodMs, TEXT } from './options.js';
import { ignoreOutage } from './outage.js';

type Record = Awaited<ReturnType<ThrottlerStorage['increment']>>;

export interface StorageOptions {
  /** What all keys begin with. */
  prefix?: string;
  /** `log` counts exactly as the library's storage in memory does. `window` and `bucket` are smaller, for limits above some thousands. */
  algorithm?: 'log' | 'window' | 'fixed' | 'bucket';
}

/** The `Retry-After` of a block without an end: the longest period of a rule. */
const NO_END_S = 366 * 24 * 60 * 60;

/** A storage of @nestjs/throttler. The server decides, and a denied request consumes nothing. */
export class RateLimitThrottlerStorage implements ThrottlerStorage {
  readonly #limiter: RateLimiter;
  readonly #prefix: string;
  readonly #algorithm: string;

  constructor(limiter: RateLimiter, options: StorageOptions = {}) {
    inOrder('RateLimitThrottlerStorage', options, { prefix: TEXT, algorithm: oneOf('log', 'window', 'fixed', 'bucket') });
    const { prefix = 'throttler:', algorithm = 'log' } = options;
    this.#limiter = limiter;
    this.#prefix = prefix;
    this.#algorithm = algorithm;
  }

  async increment(key: string, ttl: number, limit: number, blockDuration: number, throttlerName: string): Promise<Record> {
    const ban = blockDuration > 0 ? `,ban=${periodMs('blockDuration', blockDuration)}ms` : '';
    const most = Math.floor(limit);
    const limited = `${this.#prefix}${throttlerName}:${key}`;
    const reply = await this.#limiter.check(limited, `${this.#algorithm}:${most}/${periodMs('ttl', ttl)}ms${ban}`).catch(hideInStore);
    if (reply.verdict === 'allowed') {
      const totalHits = reply.limit === -1 ? 0 : most - reply.remaining;
      return { totalHits, timeToExpire: seconds(reply.resetMs), isBlocked: false, timeToBlockExpire: 0 };
    }
    let waitMs = reply.waitMs;
    if (reply.verdict === 'limited' && reply.source === 'server' && ban && blockDuration < ttl) {
      // After a block the library counts from 0, even where earlier hits would still count.
      await this.#limiter.reset(limited).catch(ignoreOutage).catch(hideInStore); // the denial stands
      waitMs = blockDuration;
    }
    const timeToBlockExpire = waitMs < 0 ? NO_END_S : seconds(waitMs);
    return { totalHits: most + 1, timeToExpire: timeToBlockExpire, isBlocked: true, timeToBlockExpire };
  }
}
