import { Saturated } from './places.js';

/**
 * What a framework may show to a client of an error: its status, and nothing of the key, the rules or the server. Express and Fastify
 * send `headers` too. `cause` is the error.
 */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: 500 | 503;
  readonly statusCode: 500 | 503;
  readonly headers: Readonly<Record<string, string>>;

  constructor(cause: unknown) {
    const busy = cause instanceof Saturated;
    super(busy ? 'Service Unavailable' : 'Internal Server Error', { cause });
    this.status = this.statusCode = busy ? 503 : 500;
    this.headers = busy ? { 'Retry-After': '1' } : {};
    this.stack = `${this.name}: ${this.message}`; // which Express shows while it develops
  }
}

/** Throws what may be shown of an error, and logs the rest. */
export function hide(error: unknown): never {
  if (!(error instanceof Saturated)) console.error('redis-ratelimit: a request failed:', error);
  throw new HttpError(error);
}
