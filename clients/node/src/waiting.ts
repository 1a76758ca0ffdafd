import { setTimeout as sleep } from 'node:timers/promises';

import { isOutage, within } from './outage.js';
import type { Connection, Server } from './server.js';

/** How long a connection stays open for the next caller. */
const IDLE_MS = 1000;

/** While a caller waits its server is asked so often whether it still answers ... */
const ASK_MS = 5000;
/** ... and so many times, a second apart, if it does not. */
const TRIES = 3;
const AGAIN_MS = 1000;

/** Connections for callers that wait: the server answers nothing else on them meanwhile. A caller that gives up closes its own. */
export class WaitingConnections {
  readonly #server: Server;
  readonly #idle = new Set<Connection>();

  constructor(server: Server) {
    this.#server = server;
  }

  /** Sends a command and waits for its reply; `openMs` is the time to connect, or to answer anything else meanwhile. */
  async send(command: Parameters<Server['send']>, openMs: number, waitMs: number, signal?: AbortSignal): Promise<unknown> {
    const connection = this.#next() ?? (await this.#open(openMs));
    const ended = new AbortController();
    const [, [key]] = command;
    const ask = () => within(openMs, this.#server.send(['RL.PEEK'], [key!], ['1/s']));
    try {
      signal?.throwIfAborted();
      const reply = await Promise.race([within(waitMs, connection.send(...command), signal), silence(ask, ended.signal)]);
      this.#keep(connection);
      return reply;
    } catch (error) {
      connection.close();
      throw error;
    } finally {
      ended.abort();
    }
  }

  #next(): Connection | undefined {
    for (const connection of this.#idle) {
      this.#idle.delete(connection);
      if (connection.alive()) return connection;
    }
    return undefined;
  }

  async #open(openMs: number): Promise<Connection> {
    const opening = this.#server.open();
    try {
      return await within(openMs, opening);
    } catch (error) {
      opening.then((connection) => connection.close(), () => {}); // it came too late
      throw error;
    }
  }

  #keep(connection: Connection): void {
    this.#idle.add(connection);
    setTimeout(() => {
      if (this.#idle.delete(connection)) connection.close();
    }, IDLE_MS);
  }
}

/** Rejects once the server answers nothing. */
async function silence(ask: () => Promise<unknown>, signal: AbortSignal): Promise<never> {
  let failures = 0;
  for (;;) {
    await sleep(failures === 0 ? ASK_MS : AGAIN_MS, undefined, { signal });
    const error = await ask().then(() => undefined, (reason: unknown) => reason);
    failures = isOutage(error) ? failures + 1 : 0;
    if (failures === TRIES) throw error;
  }
}
