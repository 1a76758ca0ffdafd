import { Cluster } from './cluster.js';
import type { Command, Key, Library, Servers, Word } from './library.js';
import { Node, type NodeOptions } from './node.js';
import type { Notices } from './notices.js';
import { Places } from './places.js';
import { type Engine, evalsha, evaluate, hasForgotten } from './script.js';

export interface AskingOptions {
  /** How long a command may take once it has its place: 250 ms by default. */
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

/** Commands that may be sent again if their connection ends. So may a check with the id of a hold. */
const REPEATABLE = new Set(['RL.PEEK', 'RL.EXPLAIN', 'RL.SETTLE', 'RL.RENEW']);

/** Sends commands, each once it has its place. */
export class Asking {
  readonly #servers: Servers;
  readonly #places: Places;
  readonly #prefix: string;
  readonly #byScript: boolean;
  readonly #leave = () => this.#places.leave();

  constructor(library: Library | undefined, notices: Notices, { timeoutMs = 250, concurrency = 1000, queueTimeoutMs = 5000, engine }: AskingOptions) {
    this.#servers = library ? serversOf(library, timeoutMs, notices.outage.bind(notices)) : NOBODY;
    this.#places = new Places(concurrency, queueTimeoutMs);
    this.#prefix = library?.prefix ?? '';
    this.#byScript = engine === 'script';
  }

  /** Whether there is no server: this process decides. */
  get asksNobody(): boolean {
    return this.#servers === NOBODY;
  }

  /** Whether a node is away. */
  get away(): boolean {
    return this.#servers.away;
  }

  /** Whether the node of a key is away: then nothing is sent. */
  awayFor(key: Key): boolean {
    return this.#servers.awayFor(this.#prefixed(key));
  }

  ask(command: Command, repeatable = REPEATABLE.has(command[0][0]!)): Promise<unknown> {
    if (this.#byScript) return this.#askScript(command, repeatable);
    const enter = () => {
      const answer = this.#send(command, repeatable);
      answer.then(this.#leave, this.#leave);
      return answer;
    };
    return this.#places.take()?.then(enter) ?? enter();
  }

  async #askScript(command: Command, repeatable: boolean): Promise<unknown> {
    const sent = evalsha(command);
    await this.#places.take();
    try {
      return await this.#send(sent, repeatable).catch((error: unknown) => (hasForgotten(error) ? this.#send(evaluate(sent), repeatable) : Promise.reject(error)));
    } finally {
      this.#leave();
    }
  }

  /** Sends a command that the server answers when it wants to, for at most `ms`. It needs no place. */
  wait(command: Command, ms: number, signal?: AbortSignal): Promise<unknown> {
    return this.#servers.wait(this.#words(command), this.#prefixed(command[1][0]!), ms, signal);
  }

  close(): void {
    this.#servers.close();
  }

  #send(command: Command, repeatable: boolean): Promise<unknown> {
    return this.#servers.ask(this.#words(command), this.#prefixed(command[1][0]!), repeatable);
  }

  #words([head, keys, tail]: Command): Word[] {
    return [...head, ...(this.#prefix ? keys.map((key) => this.#prefixed(key)) : keys), ...tail];
  }

  #prefixed(key: Key): Key {
    if (!this.#prefix) return key;
    return typeof key === 'string' ? this.#prefix + key : Buffer.concat([Buffer.from(this.#prefix), key]);
  }
}

function serversOf(library: Library, timeoutMs: number, tell: NodeOptions['tell']): Servers {
  if (library.isCluster) return new Cluster(library, { timeoutMs, tell });
  return new Node({ name: library.name, timeoutMs, tell, open: (ms, signal) => library.open(ms, signal) });
}

const nothing = () => Promise.reject(new Error('this limiter asks no server'));
const NOBODY: Servers = { away: false, awayFor: () => true, ask: nothing, wait: nothing, close() {} };
