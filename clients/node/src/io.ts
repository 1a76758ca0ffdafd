// ioredis, and iovalkey, a fork of ioredis.

import type { Address, Library } from './library.js';

type NatMap = Readonly<Record<string, Address>> | ((name: string) => Address | null | undefined) | null | undefined;

interface Options {
  host?: string | undefined;
  port?: number | undefined;
  path?: string | undefined;
  sentinels?: unknown;
  name?: string | null | undefined;
  keyPrefix?: string | undefined;
  natMap?: NatMap;
  redisOptions?: object | undefined;
}

/** What the clients of both libraries have in common. */
interface Client {
  options: object;
  status: string;
  connect(): Promise<unknown>;
  disconnect(): void;
  on(event: 'error' | 'end', listener: (error: Error) => void): unknown;
}

/** A client of one server. */
interface One extends Client {
  stream?: { unref(): unknown };
  call(command: string, args: unknown[]): Promise<unknown>;
  duplicate(options: object): One;
}

interface Many extends Client {
  nodes(role: 'all'): One[];
  duplicate(nodes: never[], options: object): Many;
}

/** The options in which a connection differs from the client: it is not opened again, and sends nothing twice. */
const ALONE = {
  lazyConnect: true,
  disconnectTimeout: 0,
  retryStrategy: null,
  sentinelRetryStrategy: null,
  reconnectOnError: null,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  enableReadyCheck: false,
  enableAutoPipelining: false,
  failoverDetector: false,
  commandTimeout: undefined,
  socketTimeout: undefined,
  stringNumbers: false,
  keyPrefix: '',
  readOnly: false,
};

export function libraryOf(given: unknown): Library {
  const client = given as One | Many;
  const options = client.options as Options;
  const isCluster = 'nodes' in client;
  let ofCluster: One | undefined;
  return {
    name: isCluster ? 'the cluster' : options.sentinels ? `${options.name}` : (options.path ?? `${options.host}:${options.port}`),
    prefix: options.keyPrefix ?? (options.redisOptions as Options | undefined)?.keyPrefix ?? '',
    isCluster,
    onEnd: (listener) => void client.on('end', listener),
    open: async (ms, signal, address) => {
      if (client.status === 'end') throw new Error('the client is closed');
      if ('nodes' in client && (!ofCluster || !address)) ofCluster = await someNode(client, ms, signal);
      const alone = (ofCluster ?? (client as One)).duplicate({ ...ALONE, connectTimeout: ms, ...(address && mapped(options.natMap, address)) });
      await connect(alone, signal);
      alone.stream?.unref();
      return {
        send: ([name, ...args]) => alone.call(name as string, args),
        alive: () => alone.status === 'ready',
        close: () => alone.disconnect(),
      };
    },
  };
}

/** A node of a cluster, found as the client finds it: its options are those of all nodes. */
async function someNode(client: Many, ms: number, signal: AbortSignal): Promise<One> {
  const redisOptions = { ...(client.options as Options).redisOptions, connectTimeout: ms, disconnectTimeout: 0 };
  const found = client.duplicate([], { lazyConnect: true, clusterRetryStrategy: null, slotsRefreshTimeout: ms, enableReadyCheck: false, redisOptions });
  try {
    await connect(found, signal);
    return found.nodes('all')[0]!;
  } finally {
    found.disconnect();
  }
}

async function connect(client: Client, signal: AbortSignal): Promise<void> {
  let reason: Error | undefined;
  client.on('error', (error) => (reason = error)); // such as WRONGPASS, which `connect` does not report
  signal.addEventListener('abort', () => client.disconnect());
  await client.connect().catch((error: Error) => Promise.reject(reason ?? error));
}

function mapped(natMap: NatMap, address: Address): Address {
  const name = `${address.host}:${address.port}`;
  return (typeof natMap === 'function' ? natMap(name) : natMap?.[name]) ?? address;
}
