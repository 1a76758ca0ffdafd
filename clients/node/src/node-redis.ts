import { RateLimiter } from './limiter.js';

/** A client or a pool of node-redis. */
export interface NodeRedisClient {
  sendCommand(args: string[]): Promise<unknown>;
}

/** A cluster client of node-redis, which sends a command to the node of its first key. */
export interface NodeRedisCluster {
  readonly masters: readonly unknown[];
  sendCommand(firstKey: string, isReadonly: boolean, args: string[]): Promise<unknown>;
}

/** A limiter on a client of node-redis, which has to be connected by its owner. */
export function nodeRedis(client: NodeRedisClient | NodeRedisCluster): RateLimiter {
  return new RateLimiter((head, keys, tail) => {
    const words = [...head, ...keys, ...tail];
    return 'masters' in client
      ? client.sendCommand(keys[0]!, head[0] === 'RL.PEEK', words)
      : client.sendCommand(words);
  });
}
