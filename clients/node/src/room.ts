import { randomUUID } from 'node:crypto';

import { onceAMinute } from './notices.js';
import { codeOf } from './outage.js';
import type { HoldOptions } from './request.js';

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
