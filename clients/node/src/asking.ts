import { Breaker } from './breaker.js';
import { Link } from './link.js';
import type { Notices } from './notices.js';
import { isRefusal, kindOf } from './outage.js';
import { within } from './patience.js';
import { Places, Saturated } from './places.js';
import { type Engine, evalsha, evaluate, hasForgotten } from './script.js';
import type { Command, Server } from './server.js';

export interface AskingOptions {
  /** How long a command may take once it has its place, whatever time-outs the client library has: 250 ms by default. */
  timeoutMs?: number;
  /** How many commands are under way at once: 1000 by default. Further ones wait in line. */
  concurrency?: number;
  /** How long a command waits in line, until {@link Saturated} is thrown: 5000 ms by default. With 0 it does not wait. */
  queueTimeoutMs?: number;
  /**
   * Who decides: the `module` (the default), or the `script`, for servers that load no module. Each has its own counts.
   * With the script `checkAll` asks key by key, as `separately` does. After a denial, refunds give back the newest units
   * of the keys before. A call that needs the module, such as `hold`, throws a TypeError.
   */
  engine?: Engine;
}

/** The commands that check. If the server refuses any other command, or does not know it, checks may still work. */
const CHECKS = new Set(['RL.CHECK', 'RL.MCHECK', 'RL.PEEK']);

/** Asks the server, as long as it answers. */
export class Asking {
  readonly timeoutMs: number;
  readonly #server: Server;
  readonly #link: Link;
  readonly #places: Places;
  readonly #breaker = new Breaker();
  readonly #notices: Notices;
  readonly #byScript: boolean;
  /** Rejects commands under way. */
  readonly #waiting = new Set<(error: unknown) => void>();

  constructor(server: Server, notices: Notices, { timeoutMs = 250, concurrency = 1000, queueTimeoutMs = 5000, engine }: AskingOptions) {
    this.timeoutMs = timeoutMs;
    this.#server = server;
    this.#link = new Link(server, timeoutMs);
    this.#places = new Places(concurrency, queueTimeoutMs);
    this.#notices = notices;
    this.#byScript = engine === 'script';
  }

  /** Whether the limiter has stopped asking the server, except for one try a second. */
  get away(): boolean {
    return this.#breaker.open;
  }

  /** Whether every command now fails at once, without being sent to the server. */
  get rests(): boolean {
    return this.away && this.#breaker.shut(performance.now());
  }

  /** Sends a command once it has a place. */
  async ask(command: Command): Promise<unknown> {
    const words = this.#byScript ? evalsha(command) : command;
    if (this.rests) throw this.#breaker.error;
    const queued = this.#places.take();
    if (queued) await queued;
    try {
      const send = this.away ? this.#link.sendAnew : this.#link.send;
      const once = (words: Command) => within(this.timeoutMs, send(...words), this.#waiting);
      const again = (error: unknown) => (this.#byScript && hasForgotten(error) ? once(evaluate(words)) : Promise.reject(error));
      const ask = () => (this.#byScript ? once(words).catch(again) : once(words));
      return await this.guard(ask, { isCheck: CHECKS.has(command[0][0]!) });
    } finally {
      this.#places.leave();
    }
  }

  /** Asks, unless the server is away. Only an outage or a misconfiguration counts against the server. */
  async guard(send: () => Promise<unknown>, { signal, isCheck = true }: { signal?: AbortSignal | undefined; isCheck?: boolean }): Promise<unknown> {
    const tries = this.away;
    if (tries && !this.#breaker.asks(performance.now())) throw this.#breaker.error;
    try {
      const reply = await send();
      this.#back();
      return reply;
    } catch (error) {
      const kind = kindOf(error);
      const says = !signal?.aborted && !(error instanceof Saturated) && (isCheck || !isRefusal(error));
      if (says && kind === 'mistake') this.#back();
      else if (says && (tries || !this.away)) this.#failed(error as Error);
      throw error;
    }
  }

  #failed(error: Error): void {
    const now = performance.now();
    const opens = this.#breaker.failed(now, error);
    if (kindOf(error) === 'misconfigured') this.#notices.misconfigured(now, error);
    this.#server.lost?.();
    if (!opens) return;
    this.#notices.outage(true, error);
    for (const reject of this.#waiting) reject(error);
  }

  #back(): void {
    if (this.#breaker.succeeded()) this.#notices.outage(false, this.#breaker.error);
  }
}
