import { within } from './outage.js';
import type { Connection, Server } from './server.js';

/** How long a connection stays open for the next caller. */
const IDLE_MS = 1000;

/** Connections for callers that wait: the server answers nothing else on them meanwhile. A caller that gives up closes its own. */
export class WaitingConnections {
  readonly #server: Server;
  readonly #idle = new Set<Connection>();

  constructor(server: Server) {
    this.#server = server;
  }

  /** Sends a command and waits for its reply; `openMs` is the time to connect. */
  async send(command: Parameters<Server['send']>, openMs: number, waitMs: number, signal?: AbortSignal): Promise<unknown> {
    const connection = this.#next() ?? (await this.#open(openMs));
    try {
      signal?.throwIfAborted();
      const reply = await within(waitMs, connection.send(...command), signal);
      this.#keep(connection);
      return reply;
    } catch (error) {
      connection.close();
      throw error;
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
