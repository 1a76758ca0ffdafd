import { Saturated } from './errors.js';
import { onceAMinute } from './notices.js';
import { isOutage, named } from './outage.js';

/**
 * The part of an error that a framework may show to a client: its status, and nothing of the key, the rules or the
 * server. Express and Fastify send `headers` too. `cause` is the error.
 */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: 500 | 503;
  readonly statusCode: 500 | 503;
  readonly headers: Readonly<Record<string, string>>;

  constructor(cause: unknown, undecided: boolean) {
    super(undecided ? 'Service Unavailable' : 'Internal Server Error', { cause });
    this.status = this.statusCode = undecided ? 503 : 500;
    this.headers = undecided ? { 'Retry-After': '1' } : {};
    this.stack = `${this.name}: ${this.message}`; // Express shows the stack in development
  }
}

/** `hide` for a store of another library, which answers an outage with status 500. */
export function hideInStore(error: unknown): never {
  return hide(error, false);
}

/** Throws what may be shown of an error, and logs the rest. An outage becomes a 503, since nobody could decide. */
export function hide(error: unknown, undecided = true): never {
  if (isOutage(error)) {
    if (onceAMinute(named(error))) console.warn(`redis-ratelimit: a request is refused, the server gives no decision: ${named(error)}`);
  } else if (!(error instanceof Saturated) && onceAMinute(String(error))) console.error('redis-ratelimit: a request failed:', error);
  throw new HttpError(error, error instanceof Saturated || (undecided && isOutage(error)));
}
