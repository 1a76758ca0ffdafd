import { type LimiterOptions, RateLimiter } from './limiter.js';
import { Saturated } from './places.js';
import type { Send, Server } from './server.js';

interface Duplicates<Options> {
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: 'error', listener: () => void): unknown;
  duplicate(options: Options): unknown;
}

/** A client of node-redis. */
export interface NodeRedisClient extends Duplicates<{ socket: object }> {
  readonly isReady: boolean;
  readonly options?: { socket?: object } | undefined;
  sendCommand(args: string[], options?: object): Promise<unknown>;
}

/** A cluster client of node-redis, which sends a command to the node of its first key. */
export interface NodeRedisCluster extends Duplicates<object> {
  readonly masters: readonly unknown[];
  sendCommand(firstKey: string, isReadonly: boolean, args: string[], options?: object): Promise<unknown>;
}

/** A limiter on a client of node-redis, which its owner must connect. */
export function nodeRedis(client: NodeRedisClient | NodeRedisCluster, options?: LimiterOptions): RateLimiter {
  return new RateLimiter(serverOf(client), options);
}

function serverOf(client: NodeRedisClient | NodeRedisCluster): Server {
  const open = async (signal: AbortSignal) => {
    const alone = (
      'masters' in client
        ? client.duplicate({})
        : client.duplicate({ socket: { ...client.options?.socket, socketTimeout: undefined, reconnectStrategy: false } })
    ) as typeof client;
    alone.on('error', () => {}); // the command fails with this error
    signal.addEventListener('abort', () => alone.destroy());
    await alone.connect();
    return { send: sendBy(alone), alive: () => alone.isOpen, close: () => alone.destroy() };
  };
  return { send: sendBy(client), ended: () => !client.isOpen, open };
}

/**
 * Switches off a connected client's time-out, which starts before a busy process writes the command: the limiter has its own
 * time-out. An unconnected client keeps its time-out, which drops commands that were never sent.
 */
const UNTIMED = { timeout: undefined };

function sendBy(client: NodeRedisClient | NodeRedisCluster): Send {
  return (head, keys, tail) => {
    const words = [...head, ...keys, ...tail];
    const sent =
      'masters' in client
        ? client.sendCommand(keys[0]!, head[0] === 'RL.PEEK', words, UNTIMED)
        : client.sendCommand(words, client.isReady ? UNTIMED : undefined);
    return sent.catch((error: Error) => Promise.reject(isFull(error, client) ? new Saturated(error.message) : error));
  };
}

/** Whether the client's queue (`commandsQueueMaxLength`) is full although the server is not away: this process asks too much. */
function isFull({ message }: Error, client: NodeRedisClient | NodeRedisCluster): boolean {
  return message === 'The queue is full' && !('isReady' in client && !client.isReady);
}
