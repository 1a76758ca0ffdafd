// A client library, as the limiter needs it.

export type Word = string | Buffer;

/** A key as it is sent: bytes only if they are no text. */
export type Key = Word;

/** A text for each key, and no two keys have the same: no text that is sent has a lone surrogate. */
export function nameOf(key: Key): string {
  return typeof key === 'string' ? key : `\udc00${key.toString('latin1')}`;
}

/** The command `[...head, ...keys, ...tail]`. */
export type Command = [head: string[], keys: Key[], tail: string[]];

export interface Address {
  host: string;
  port: number;
}

/** A connection that only the limiter uses. It never connects again, sends nothing twice, and does not keep the process alive. */
export interface Connection {
  send(words: readonly Word[]): Promise<unknown>;
  alive(): boolean;
  close(): void;
}

export interface Library {
  /** What the client connects to, for errors and events. */
  readonly name: string;
  /** What keys begin with. */
  readonly prefix: string;
  readonly isCluster: boolean;
  /**
   * Connects as the client would: to a server, or to some node of a cluster; to another node if there is an address. Fails if the
   * application has closed the client.
   */
  open(timeoutMs: number, signal: AbortSignal, address?: Address): Promise<Connection>;
}

/** The nodes that answer: one server, or the primaries of a cluster. */
export interface Servers {
  readonly away: boolean;
  awayFor(key: Word): boolean;
  /** Sends a command to the node of a key. One that may be repeated is sent again if its connection ends. */
  ask(words: readonly Word[], key: Word, repeatable: boolean): Promise<unknown>;
  /** Sends a command that the server answers when it wants to, for at most `ms`, on a connection for this call. */
  wait(words: readonly Word[], key: Word, ms: number, signal?: AbortSignal): Promise<unknown>;
  close(): void;
}
