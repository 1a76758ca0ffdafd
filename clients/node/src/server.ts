import { within } from './patience.js';

/** The command `[...head, ...keys, ...tail]`. */
export type Command = [head: string[], keys: string[], tail: string[]];

/**
 * Sends the command. Client libraries find the node of a cluster by the keys, and add their prefix to them.
 */
export type Send = (...command: Command) => Promise<unknown>;

/** A connection that only the limiter uses. */
export interface Connection {
  send: Send;
  /** Whether it is still connected. */
  alive(): boolean;
  close(): void;
}

/** A client of some library, as the limiter needs it. */
export interface Server {
  send: Send;
  /** Called on an outage: a node of a cluster that hangs may have a successor. */
  lost?(): void;
  /** Whether the application has closed the client for good. */
  ended(): boolean;
  /** Opens another connection like that of the client, which closes if the signal aborts. */
  open(signal: AbortSignal): Promise<Connection>;
}

/** Opens a connection within `ms`, or throws. */
export async function openWithin(ms: number, server: Server): Promise<Connection> {
  if (server.ended()) throw new Error('the client is closed');
  const late = new AbortController();
  try {
    return await within(ms, server.open(late.signal));
  } catch (error) {
    late.abort();
    throw error;
  }
}
