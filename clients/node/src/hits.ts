import type { Reply } from './replies.js';

/** A limit that no client reaches. */
const MOST = 1_000_000_000;

/**
 * The rule of a mere counter, for libraries that decide themselves: what is left of its limit says how many hits there
 * were in the window that the first hit opened.
 */
export function counter(windowMs: number): string {
  return `fixed:${MOST}/${windowMs}ms,align=first`;
}

/**
 * The hits that the counter has seen: more than any limit if the key is blocked, none if it is exempt. In a process with a share
 * of the limits each hit counts for those of the others as well.
 */
export function hits({ limit, remaining }: Reply): number {
  if (limit <= 0) return limit === 0 ? MOST : 0;
  return Math.round((limit - remaining) * (MOST / limit));
}
