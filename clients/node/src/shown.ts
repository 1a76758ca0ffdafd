import { isOutage, named } from './outage.js';
import { Saturated } from './errors.js';

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

/** Outages that are logged already: while a limiter does not ask the server, it throws the same last outage for each request. */
const logged = new WeakSet<object>();

/** `hide` for a store of another library, which answers an outage with status 500. */
export function hideInStore(error: unknown): never {
  return hide(error, false);
}

/** Throws what may be shown of an error, and logs the rest. An outage becomes a 503, since nobody could decide. */
export function hide(error: unknown, undecided = true): never {
  if (!isOutage(error)) {
    if (!(error instanceof Saturated)) console.error('redis-ratelimit: a request failed:', error);
  } else if (!logged.has(error as Error)) {
    logged.add(error as Error);
    console.warn(`redis-ratelimit: a request is refused, the server gives no decision: ${named(error)}`);
  }
  throw new HttpError(error, error instanceof Saturated || (undecided && isOutage(error)));
}
