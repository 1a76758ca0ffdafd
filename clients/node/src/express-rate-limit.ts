import type { ClientRateLimitInfo, Options, Store } from 'express-rate-limit';

import { counter, hits } from './hits.js';
import type { RateLimiter } from './limiter.js';
import { inOrder, TEXT } from './options.js';
import { ignoreOutage } from './outage.js';
import type { Reply } from './replies.js';
import { hideInStore } from './http.js';

/**
 * A store of express-rate-limit. That library decides by the number of hits, and counts denied hits too. A denied hit
 * changes no decision: the first hit opens the window, a client that is over the limit stays over it until the window
 * ends, and no hit moves that end.
 */
export class RateLimitStore implements Store {
  readonly localKeys = false;
  readonly prefix: string;
  readonly #limiter: RateLimiter;
  #windowMs = 60_000;

  constructor(limiter: RateLimiter, options: { prefix?: string } = {}) {
    inOrder('RateLimitStore', options, { prefix: TEXT });
    const { prefix = 'rl:' } = options;
    this.#limiter = limiter;
    this.prefix = prefix;
  }

  init({ windowMs }: Options): void {
    this.#windowMs = windowMs;
    counter(windowMs); // the library logs an error here, and each request throws it again
  }

  async get(key: string): Promise<ClientRateLimitInfo | undefined> {
    const info = infoOf(await this.#limiter.peek(this.prefix + key, counter(this.#windowMs)).catch(hideInStore));
    return info.totalHits > 0 ? info : undefined;
  }

  async increment(key: string): Promise<ClientRateLimitInfo> {
    const { totalHits, resetTime } = infoOf(await this.#limiter.check(this.prefix + key, counter(this.#windowMs)).catch(hideInStore));
    return { totalHits: Math.max(1, totalHits), resetTime }; // the library expects at least this hit, also from exempt clients
  }

  /** The library does not say which hit it takes back. If that hit's window has ended, a hit of the next window is taken back. */
  async decrement(key: string): Promise<void> {
    await this.#limiter.refund(this.prefix + key, 1, counter(this.#windowMs)).catch(ignoreOutage).catch(hideInStore); // the library would not catch an outage
  }

  async resetKey(key: string): Promise<void> {
    await this.#limiter.reset(this.prefix + key).catch(hideInStore);
  }
}

function infoOf(reply: Reply): ClientRateLimitInfo {
  return { totalHits: hits(reply), resetTime: reply.resetMs < 0 ? undefined : new Date(Date.now() + reply.resetMs) };
}
