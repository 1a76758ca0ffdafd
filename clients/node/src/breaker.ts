/** How many outages in a row open the breaker. */
const FAILURES = 3;
/** How long the breaker stays open before one request tries the server. */
const PAUSE_MS = 1000;

/** Decides whether to ask the server. All times are milliseconds of one clock that never goes back. */
export class Breaker {
  /** The last outage. */
  error: unknown;
  #failures = 0;
  #retryAt = 0;
  #trying = false;

  get open(): boolean {
    return this.#failures >= FAILURES;
  }

  /** Whether no request may ask the server now. */
  shut(now: number): boolean {
    return this.open && (this.#trying || now < this.#retryAt);
  }

  /** Whether a request may ask the server; it must then say `succeeded`, `failed` or `left`. */
  asks(now: number): boolean {
    if (this.shut(now)) return false;
    this.#trying = this.open;
    return true;
  }

  /** The server replied. Returns whether that closed the breaker. */
  succeeded(): boolean {
    const closed = this.open;
    this.#failures = 0;
    this.#trying = false;
    return closed;
  }

  /** An outage. Returns whether that opened the breaker. */
  failed(now: number, error: unknown): boolean {
    this.error = error;
    this.#failures += 1;
    this.#trying = false;
    this.#retryAt = now + PAUSE_MS;
    return this.#failures === FAILURES;
  }

  /**
   * The request ended without telling whether the server checks: it was aborted or got no place, or the server refused a command
   * other than a check.
   */
  left(): void {
    this.#trying = false;
  }
}
