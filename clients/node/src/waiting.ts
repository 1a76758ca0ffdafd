import { setTimeout as sleep } from 'node:timers/promises';

import { kindOf } from './outage.js';
import { within } from './patience.js';
import { type Command, type Connection, openWithin, type Server } from './server.js';

/** How long a connection stays open for the next caller. */
const IDLE_MS = 1000;

/** While a caller waits, the limiter asks at this interval whether the server still answers ... */
const ASK_MS = 5000;
/** ... and after a failure each second. This number of failures in a row ends the wait. */
const TRIES = 3;
const AGAIN_MS = 1000;

/** Connections for callers that wait: the server answers nothing else on them meanwhile. A caller that gives up closes its connection. */
export class WaitingConnections {
  readonly #server: Server;
  readonly #idle = new Set<Connection>();

  constructor(server: Server) {
    this.#server = server;
  }

  /** Sends a command and waits for its reply; `openMs` bounds connecting, and each question whether the server still answers. */
  async send(command: Command, openMs: number, waitMs: number, signal?: AbortSignal): Promise<unknown> {
    const connection = this.#next() ?? (await openWithin(openMs, this.#server));
    const ended = new AbortController();
    const [, [key]] = command;
    const ask = () => within(openMs, this.#server.send(['RL.PEEK'], [key!], ['1/s']));
    try {
      signal?.throwIfAborted();
      const reply = await Promise.race([within(waitMs, connection.send(...command)), silence(ask, ended.signal), aborted(signal, ended.signal)]);
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

  #keep(connection: Connection): void {
    this.#idle.add(connection);
    setTimeout(() => {
      if (this.#idle.delete(connection)) connection.close();
    }, IDLE_MS);
  }
}

/** Rejects once the server has stopped answering. */
async function silence(ask: () => Promise<unknown>, signal: AbortSignal): Promise<never> {
  let failures = 0;
  for (;;) {
    await sleep(failures === 0 ? ASK_MS : AGAIN_MS, undefined, { signal });
    const error = await ask().then(() => undefined, (reason: unknown) => reason);
    failures = kindOf(error) === 'outage' ? failures + 1 : 0; // a server that refuses this client is not silent
    if (failures === TRIES) throw error;
  }
}

/** Rejects when the caller gives up. */
function aborted(signal: AbortSignal | undefined, ended: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal?.addEventListener('abort', () => reject(signal.reason), { signal: ended });
  });
}
