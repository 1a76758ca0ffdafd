/**
 * Sends the command `[...head, ...keys, ...tail]`. Client libraries find the node of a cluster by the keys, and add their
 * prefix to them.
 */
export type Send = (head: string[], keys: string[], tail: string[]) => Promise<unknown>;

/** A connection for one caller that waits. */
export interface Connection {
  send: Send;
  /** Whether it is connected still. */
  alive(): boolean;
  close(): void;
}

/** A client of some library, as the limiter needs it. */
export interface Server {
  send: Send;
  /** Hears of an outage: a node of a cluster that hangs may have a successor. */
  lost?(): void;
  /** Opens another connection like that of the client. */
  open(): Promise<Connection>;
}
