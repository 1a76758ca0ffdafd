import { setTimeout as sleep } from 'node:timers/promises';

import { codeOf } from './outage.js';
import { type Connection, openWithin, type Send, type Server } from './server.js';

/** How long a new connection may take to open. A connection that opens too late for one try serves the next try. */
const OPEN_MS = 2000;
/** The pause before the limiter again asks a client that did not answer. */
const AGAIN_MS = 100;

/**
 * The way to the server: the application's client. A client that lost its connection connects again when it chooses to,
 * after pauses that grow to seconds. The first try after an outage therefore connects anew, and until the client
 * answers, that connection carries all commands.
 */
export class Link {
  readonly #server: Server;
  readonly #timeoutMs: number;
  #own: Connection | undefined;
  #opening: Promise<Connection> | undefined;
  #asking: Promise<unknown> | undefined;

  constructor(server: Server, timeoutMs: number) {
    this.#server = server;
    this.#timeoutMs = timeoutMs;
  }

  readonly send: Send = (...command) => (this.#own?.alive() ? this.#own : this.#server).send(...command);

  /** Sends a command by the client or by a new connection, whichever answers first, unless the caller has given up by then. */
  readonly sendAnew: Send = async (...command) => {
    const until = performance.now() + this.#timeoutMs;
    const [, [key]] = command;
    const client = this.#hear(key!).then(() => this.#server.send);
    const own = this.#connect(key!).then(({ send }) => send, refused);
    const send = await Promise.any([client, own]).catch(({ errors }: AggregateError) => Promise.reject(errors[1]));
    if (performance.now() > until) throw new Error('connected too late for this command');
    return send(...command);
  };

  /** Resolves once the client has a reply, whatever it says. One question at a time is enough. */
  #hear(key: string): Promise<unknown> {
    this.#asking ??= this.#server
      .send(['RL.PEEK'], [key], ['1/s'])
      .catch((error: Error) => {
        if (!codeOf(error)) throw error;
      })
      .finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  #connect(key: string): Promise<Connection> {
    if (this.#own?.alive()) return Promise.resolve(this.#own);
    this.#opening ??= openWithin(OPEN_MS, this.#server)
      .then((connection) => {
        this.#own = connection;
        void this.#hand(connection, key);
        return connection;
      })
      .finally(() => (this.#opening = undefined));
    return this.#opening;
  }

  /** Hands over to the client once the client answers or is closed. */
  async #hand(connection: Connection, key: string): Promise<void> {
    const answers = () => this.#hear(key).then(() => true, () => false);
    while (connection.alive() && !this.#server.ended() && !(await answers())) await sleep(AGAIN_MS);
    if (this.#own === connection) this.#own = undefined;
    setTimeout(() => connection.close(), this.#server.ended() ? 0 : 2 * this.#timeoutMs).unref(); // after its last reply
  }
}

/** A server that refuses a connection by a reply, such as WRONGPASS, has answered. */
function refused(error: Error): Send {
  if (!codeOf(error)) throw error;
  return () => Promise.reject(error);
}
