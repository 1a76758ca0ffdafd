import { randomUUID } from 'node:crypto';

import { FLAG, type Forms, inOrder } from './options.js';
import { onceAMinute } from './notices.js';
import { codeOf, ignoreOutage } from './outage.js';
import type { Reply } from './replies.js';
import { COST, type HoldOptions } from './request.js';

/** How a hold ends: with its charges as they stand, with another cost, or with all given back. */
export interface SettleOptions {
  cost?: number | Readonly<Record<string, number>>;
  refund?: boolean;
}

export const SETTLE: Forms<SettleOptions> = { cost: COST, refund: FLAG };

/** The longest that a timer can wait. */
const LONGEST_MS = 2 ** 31 - 1;

/** The place of a hold: the server, or this process. */
export interface Keeper {
  /** Moves the hold's end; `false` if it has ended. */
  renew(): Promise<boolean>;
  /** `leftMs`: after this time the hold has ended. */
  settle(options: SettleOptions, leftMs: number): Promise<boolean>;
}

/**
 * A hold that renews itself until it is settled. `await using` settles it at the end of the block:
 *
 *     await using hold = await limiter.hold('export', 'slots:4', { ttlMs: 30_000 });
 *     await work({ signal: hold.lost });
 */
export class Hold implements AsyncDisposable {
  readonly id: string;
  readonly reply: Reply;
  readonly #keeper: Keeper;
  readonly #lost = new AbortController();
  readonly #renewing: NodeJS.Timeout;
  #ends: NodeJS.Timeout;
  #endsAt = 0;
  #settled = false;

  /** `leftMs` is what is left of `ttlMs` now. */
  constructor(id: string, reply: Reply, keeper: Keeper, ttlMs: number, leftMs: number) {
    this.id = id;
    this.reply = reply;
    this.#keeper = keeper;
    this.#renewing = setInterval(() => void this.#renew(ttlMs), Math.min(ttlMs / 3, LONGEST_MS / 3)).unref();
    this.#ends = this.#lostAfter(leftMs);
  }

  /** Aborts when the hold has ended before it was settled: others may have its units now. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Ends the hold; `false` if it had ended before. Charges stand, or are corrected to `cost`; slots become free. */
  async settle(options: SettleOptions = {}): Promise<boolean> {
    inOrder('settle', options, SETTLE);
    this.#stop();
    this.#settled = true;
    return this.#keeper.settle(options, this.#endsAt - performance.now());
  }

  /** Ends the hold and gives back all that it has consumed. */
  refund(): Promise<boolean> {
    return this.settle({ refund: true });
  }

  /** Settles the hold, unless it is settled already. If the server is away, the limiter goes on trying until the hold ends. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#settled) await this.settle().catch(ignoreOutage);
  }

  async #renew(ttlMs: number): Promise<void> {
    const asked = performance.now();
    const lives = await this.#keeper.renew().catch(() => undefined); // the next try may reach the server
    if (this.#settled || this.lost.aborted || lives === undefined) return;
    if (!lives) return this.#lose();
    clearTimeout(this.#ends);
    this.#ends = this.#lostAfter(ttlMs - (performance.now() - asked));
  }

  #lostAfter(ms: number): NodeJS.Timeout {
    this.#endsAt = performance.now() + ms;
    return setTimeout(() => this.#lose(), Math.min(ms, LONGEST_MS)).unref();
  }

  #lose(): void {
    this.#stop();
    this.#lost.abort(new Error(`hold '${this.id}' has ended`));
  }

  #stop(): void {
    clearInterval(this.#renewing);
    clearTimeout(this.#ends);
  }
}

const FULL = /holds (on .+ rules or more )?in the key already/;

/** A hold under a new id, by which a check can be taken back whole. If nobody settles the hold, nothing comes back. */
export function receipt(ttlMs: number): HoldOptions {
  return { id: randomUUID(), ttlMs, fresh: true };
}

/** Checks with a hold. If the key has no room for one (`ratelimit.max-holds`), checks without: the cost then stays charged. */
export async function whereRoom<T>(hold: HoldOptions | undefined, check: (hold?: HoldOptions) => Promise<T>): Promise<T> {
  try {
    return await check(hold);
  } catch (error) {
    if (!hold || !(error instanceof Error) || codeOf(error) !== 'ERR' || !FULL.test(error.message)) throw error;
    const text = 'redis-ratelimit: a key has ratelimit.max-holds holds already, so the charges of further requests cannot be taken back';
    if (onceAMinute(text)) console.warn(text);
    return check();
  }
}
