import type { Reply } from './limiter.js';

/** A limit that no client reaches. */
const MOST = 1_000_000_000;

/**
 * The rule of a mere counter, for libraries that decide themselves: what is left of its limit says how many hits there
 * were in the window that the first hit opened.
 */
export function counter(windowMs: number): string {
  return `fixed:${MOST}/${windowMs}ms,align=first`;
}

/** The hits that the counter has seen: more than any limit if the key is blocked, none if it is exempt. */
export function hits({ limit, remaining }: Reply): number {
  return limit === -1 ? 0 : MOST - remaining;
}
