import { periodMs } from './options.js';
import type { Reply } from './replies.js';

/** A limit that no client reaches. */
const MOST = 1_000_000_000;

/**
 * A rule that only counts, for libraries that decide themselves: its limit minus what remains is the number of hits in
 * the window. The first hit opens the window.
 */
export function counter(windowMs: number): string {
  return `fixed:${MOST}/${periodMs('the window', windowMs)}ms,align=first`;
}

/**
 * The number of hits that the counter has seen: above any limit if the key is blocked, 0 if it is exempt. Without the
 * server, a limiter with `processes: n` counts each hit n times, to allow for the other processes.
 */
export function hits({ limit, remaining }: Reply): number {
  if (limit <= 0) return limit === 0 ? MOST : 0;
  return Math.round((limit - remaining) * (MOST / limit));
}
