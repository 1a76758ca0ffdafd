import { type Cluster, Command, type Redis } from 'ioredis';

import { RateLimiter } from './limiter.js';

/**
 * ioredis knows the keys of those commands only that it has in a table. Any other that `call` sends gets no `keyPrefix`,
 * and in a cluster it goes to some node, which replies MOVED, upon which ioredis asks for the map of the cluster again.
 * This command says what its keys are. Unlike a script of `defineCommand` it costs the server nothing more than the command
 * itself, needs no right to run scripts, and lets `RL.WAIT` wait.
 */
class KeyedCommand extends Command {
  readonly #keys: string[];

  constructor(head: string[], keys: string[], tail: string[]) {
    super(head[0]!, [...head.slice(1), ...keys, ...tail], { replyEncoding: 'utf8', readOnly: head[0] === 'RL.PEEK' });
    this.#keys = keys;
  }

  override getKeys(): string[] {
    return this.#keys;
  }
}

/** A limiter on a client of ioredis: one server, sentinels or a cluster. It honours `keyPrefix` and `scaleReads`. */
export function ioredis(client: Redis | Cluster): RateLimiter {
  return new RateLimiter((head, keys, tail) => {
    const prefix = client.options.keyPrefix ?? '';
    const command = new KeyedCommand(head, keys.map((key) => prefix + key), tail);
    return client.sendCommand(command) as Promise<unknown>;
  });
}
