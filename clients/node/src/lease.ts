import { randomUUID } from 'node:crypto';

import { lastsMs } from './denials.js';
import type { RateLimiter } from './limiter.js';
import { inOrder, integer, mustBe, TIME } from './options.js';
import type { Reply, Verdict } from './replies.js';
import { followAPlan, keyOf, type Limit, list, type Read, type Rules, UNITS } from './request.js';
import { calledOf, looksLikeRules } from './rule.js';

/** After a lease that lasts less than this, the next one asks for twice as many units ... */
const SHORT_MS = 50;
/** ... and for half as many after one that lasts more than this, or of which over half the units were unused. */
const LONG_MS = 200;

/** What {@link Lease.take} answers. */
export type Taken = Pick<Reply, 'verdict' | 'waitMs' | 'source'>;

export interface LeaseOptions {
  /** How long the server keeps a lease that is not settled: 2 s by default. */
  ttlMs?: number;
  /** The most units to lease at once: 1000 by default. */
  most?: number;
}

const TAKEN: Taken = Object.freeze({ verdict: 'allowed', waitMs: 0, source: 'lease' });

/**
 * Takes units of one hot key ahead, and hands them out in this process. Units count when they are leased, and may be used for half of
 * `ttlMs` after that (for all of `ttlMs` in a process that was paused). After a crash, the used units of the last lease, at most
 * `most`, come back when its hold ends.
 * While the server is away, the limiter's `outage` answers.
 */
export class Lease implements AsyncDisposable {
  readonly #limiter: RateLimiter;
  readonly #limit: Read;
  readonly #ttlMs: number;
  readonly #most: number;
  #ask = 1;
  #id = '';
  #granted = 0;
  #left = 0;
  #since = 0;
  #denied: { until: number; units: number; verdict: Verdict } = { until: 0, units: 0, verdict: 'limited' };
  #asking: Promise<Taken> | undefined;
  #settling: NodeJS.Timeout | undefined;

  constructor(limiter: RateLimiter, key: Limit['key'], rules: Rules, options: LeaseOptions = {}) {
    inOrder('Lease', options, { ttlMs: TIME, most: integer(1) });
    limiter.needModule('a lease');
    looksLikeRules(rules);
    const { ttlMs = 2000, most = 1000 } = options;
    this.#limiter = limiter;
    this.#limit = { key: keyOf(key), rules: list(rules) };
    this.#ttlMs = Math.ceil(ttlMs);
    this.#most = most;
  }

  /** Takes units, out of the lease if it has them. */
  async take(units = 1): Promise<Taken> {
    mustBe('take', 'units', units, UNITS);
    const began = performance.now();
    const taken = await this.#take(units);
    const { rules } = this.#limit;
    this.#limiter.tell(taken, rules.length === 1 ? calledOf(rules[0]!) : undefined, performance.now() - began);
    return taken;
  }

  async #take(units: number): Promise<Taken> {
    for (;;) {
      const now = performance.now();
      if (this.#left >= units && now < this.#since + this.#ttlMs) {
        this.#left -= units;
        return TAKEN;
      }
      const waitMs = Math.ceil(this.#denied.until - now);
      if (waitMs > 0 && units >= this.#denied.units) return { verdict: this.#denied.verdict, waitMs, source: 'denial' };
      if (this.#asking) await this.#asking; // one request is enough
      else return (this.#asking = this.#renew(units).finally(() => (this.#asking = undefined)));
    }
  }

  /** Gives back what is left. */
  async close(): Promise<void> {
    await this.#asking;
    await this.#settle()?.catch(() => false); // if this fails, what is left comes back when the hold ends
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Settles this lease and takes the next, in one round trip. */
  async #renew(units: number): Promise<Taken> {
    const ended = this.#settle();
    ended?.catch(() => false); // the check reports the error, too
    const id = randomUUID();
    const asked = performance.now();
    const hold = { id, ttlMs: this.#ttlMs, refund: true };
    const report = await this.#limiter.lease(this.#limit, units, Math.max(units, this.#ask), hold);
    const { verdict, waitMs, source, granted = units, rules } = report;
    const answer = { verdict, waitMs, source };
    if (source !== 'server') return answer;
    if (verdict !== 'allowed') {
      const until = asked + lastsMs(report, followAPlan(this.#limit.rules));
      this.#denied = { until, units, verdict };
      return answer;
    }
    if (rules.length === 0) return answer; // an exempt key has no holds
    this.#id = id;
    this.#granted = this.#left = granted;
    this.#since = asked;
    this.#settling = setTimeout(() => void this.#settle()?.catch(() => false), this.#ttlMs / 2).unref();
    this.#left -= units;
    return answer;
  }

  /** Settles the lease, if there is one, and adapts how many units the next one asks for. */
  #settle(): Promise<boolean> | undefined {
    if (this.#granted === 0) return undefined;
    clearTimeout(this.#settling);
    const used = this.#granted - this.#left;
    const lastedMs = performance.now() - this.#since;
    if (lastedMs > LONG_MS || used * 2 < this.#granted) this.#ask = Math.max(1, Math.floor(this.#ask / 2));
    else if (lastedMs < SHORT_MS && this.#granted >= this.#ask) this.#ask = Math.min(this.#most, this.#ask * 2);
    this.#granted = this.#left = 0;
    return this.#limiter.settleWithin(this.#since + this.#ttlMs - performance.now(), this.#limit.key, this.#id, { cost: used });
  }
}
