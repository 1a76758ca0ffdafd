/** How many outages in a row open the breaker. */
const FAILURES = 3;
/** How long the breaker stays open before one request tries the server, and how long until the next tries. */
const PAUSE_MS = 1000;

/** Decides whether to ask the server. All times are milliseconds of one clock that never goes back. */
export class Breaker {
  /** The last outage. */
  error: unknown;
  #failures = 0;
  #retryAt = 0;

  get open(): boolean {
    return this.#failures >= FAILURES;
  }

  /** Whether no request may ask the server now. */
  shut(now: number): boolean {
    return this.open && now < this.#retryAt;
  }

  /** Whether a request may ask the server. */
  asks(now: number): boolean {
    if (this.shut(now)) return false;
    this.#retryAt = now + PAUSE_MS; // for all requests but this one
    return true;
  }

  /** The server replied. Returns whether that closed the breaker. */
  succeeded(): boolean {
    const closed = this.open;
    this.#failures = 0;
    return closed;
  }

  /** An outage. Returns whether that opened the breaker; a later outage does not delay the next try. */
  failed(now: number, error: unknown): boolean {
    this.error = error;
    this.#failures += 1;
    const opens = this.#failures === FAILURES;
    if (opens) this.#retryAt = now + PAUSE_MS;
    return opens;
  }
}
