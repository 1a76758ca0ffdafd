import type { Address, Library } from './library.js';
import { type LimiterOptions, RateLimiter } from './limiter.js';

interface Client {
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: 'error', listener: () => void): unknown;
  duplicate(options: object): unknown;
}

/** A client of node-redis. */
export interface NodeRedisClient extends Client {
  readonly isReady: boolean;
  readonly options?: object | undefined;
  sendCommand(args: string[], options?: object): Promise<unknown>;
  unref(): void;
}

/** A cluster client of node-redis. */
export interface NodeRedisCluster extends Client {
  readonly masters: readonly { readonly address: string }[];
  nodeClient(master: never): unknown;
}

/**
 * A limiter on connections of its own, with the options of a client, or cluster client, of node-redis. The client itself need not be
 * connected; when it is closed, the limiter asks no more.
 */
export function nodeRedis(client: NodeRedisClient | NodeRedisCluster, options?: LimiterOptions): RateLimiter {
  return new RateLimiter(libraryOf(client), options);
}

type Socket = Partial<Address> & { path?: string };

/** The options in which a connection differs from the client. What `url` says is in the other options already. */
const ALONE = { url: undefined, commandOptions: undefined, clientSideCache: undefined, commandsQueueMaxLength: undefined, pingInterval: undefined };
/** Switches off a time-out that starts before a busy process writes the command. */
const UNTIMED = { timeout: undefined };

function libraryOf(client: NodeRedisClient | NodeRedisCluster): Library {
  const isCluster = 'masters' in client;
  const { host = 'localhost', port = 6379, path } = isCluster ? {} : socketOf(client);
  let opened = false;
  const ended = () => (opened ||= client.isOpen) && !client.isOpen;
  let template = isCluster ? undefined : client;
  /** How to reach each node, as the client's `nodeAddressMap` says. */
  const sockets = new Map<string, Socket>();
  return {
    name: isCluster ? 'the cluster' : (path ?? `${host}:${port}`),
    prefix: '',
    isCluster,
    open: async (ms, signal, address) => {
      if (ended()) throw new Error('the client is closed');
      const name = address && `${address.host}:${address.port}`;
      if ('masters' in client && !(name && sockets.has(name))) template = await someNode(client, signal, sockets).catch((error: unknown) => template ?? Promise.reject(error));
      const reach = { ...socketOf(template!), ...(name && (sockets.get(name) ?? address)) };
      const socket = { ...reach, connectTimeout: ms, socketTimeout: undefined, reconnectStrategy: false };
      const alone = template!.duplicate({ ...ALONE, socket }) as NodeRedisClient;
      alone.on('error', () => {}); // `connect`, or the command, fails with this error
      alone.unref();
      signal.addEventListener('abort', () => alone.isOpen && alone.destroy());
      await alone.connect();
      return {
        send: (words) => alone.sendCommand(words as string[], UNTIMED),
        alive: () => alone.isReady && !ended(),
        close: () => alone.isOpen && alone.destroy(),
      };
    },
  };
}

function socketOf({ options }: NodeRedisClient): Socket {
  return (options as { socket?: Socket } | undefined)?.socket ?? {};
}

/** A node of a cluster, found as the client finds it, and how to reach the others. */
async function someNode(client: NodeRedisCluster, signal: AbortSignal, sockets: Map<string, Socket>): Promise<NodeRedisClient> {
  const found = client.duplicate({}) as NodeRedisCluster;
  let reason: unknown;
  found.on('error', ((error: unknown) => (reason ??= error)) as () => void);
  const end = () => found.isOpen && found.destroy();
  signal.addEventListener('abort', end);
  try {
    await found.connect().catch((error: unknown) => Promise.reject(reason ?? error));
    const nodes = await Promise.all(found.masters.map(async (master) => [master.address, (await found.nodeClient(master as never)) as NodeRedisClient] as const));
    for (const [address, node] of nodes) sockets.set(address, socketOf(node));
    return nodes[0]![1];
  } finally {
    end();
  }
}
