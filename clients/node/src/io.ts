// ioredis, and iovalkey, a fork of ioredis.

import type { Address, Library } from './library.js';

type NatMap = Readonly<Record<string, Address>> | ((name: string) => Address | null | undefined) | null | undefined;

interface Options extends Partial<Address> {
  path?: string;
  sentinels?: unknown;
  name?: string;
  keyPrefix?: string;
  natMap?: NatMap;
  redisOptions?: Options;
}

/** What the clients of both libraries have: of one server, or of a cluster. */
interface Client {
  options: object;
  status: string;
  stream?: { unref(): unknown };
  connect(): Promise<unknown>;
  disconnect(): void;
  on(event: 'error', listener: (error: Error) => void): unknown;
  call(...words: unknown[]): Promise<unknown>;
  nodes?(role: 'all'): Client[];
  duplicate(...options: unknown[]): Client;
}

/** The options in which a connection differs from the client: it is not opened again, and sends nothing twice. */
const ALONE = {
  lazyConnect: true, retryStrategy: null, sentinelRetryStrategy: null, reconnectOnError: null, disconnectTimeout: 0,
  autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, enableReadyCheck: false, enableAutoPipelining: false, failoverDetector: false,
  commandTimeout: undefined, socketTimeout: undefined, stringNumbers: false, keyPrefix: '', readOnly: false,
};

export function libraryOf(given: unknown): Library {
  const client = given as Client;
  const options = client.options as Options;
  const isCluster = 'nodes' in client;
  let template = client;
  return {
    name: isCluster ? 'the cluster' : options.sentinels ? `${options.name}` : (options.path ?? `${options.host}:${options.port}`),
    prefix: options.keyPrefix ?? options.redisOptions?.keyPrefix ?? '',
    isCluster,
    open: async (ms, signal, address) => {
      if (client.status === 'end') throw new Error('the client is closed');
      if (isCluster && (template === client || !address)) template = await someNode(client, ms, signal);
      const alone = template.duplicate({ ...ALONE, connectTimeout: ms, ...(address && mapped(options.natMap, address)) });
      await connect(alone, signal);
      alone.stream?.unref();
      const alive = () => alone.status === 'ready' && client.status !== 'end';
      return { send: (words) => alone.call(...words), alive, close: () => alone.disconnect() };
    },
  };
}

/** A node of a cluster, found as the client finds it: its options are those of all nodes. */
async function someNode(client: Client, ms: number, signal: AbortSignal): Promise<Client> {
  const redisOptions = { ...(client.options as Options).redisOptions, connectTimeout: ms, disconnectTimeout: 0 };
  const found = client.duplicate([], { lazyConnect: true, clusterRetryStrategy: null, slotsRefreshTimeout: ms, enableReadyCheck: false, redisOptions });
  try {
    await connect(found, signal);
    return found.nodes!('all')[0]!;
  } finally {
    found.disconnect();
  }
}

async function connect(client: Client, signal: AbortSignal): Promise<void> {
  let reason: Error | undefined;
  client.on('error', (error) => (reason ??= error)); // such as WRONGPASS, which `connect` does not report
  signal.addEventListener('abort', () => client.disconnect());
  await client.connect().catch((error: Error) => Promise.reject((reason as { lastNodeError?: Error } | undefined)?.lastNodeError ?? reason ?? error));
}

function mapped(natMap: NatMap, address: Address): Address {
  const name = `${address.host}:${address.port}`;
  return (typeof natMap === 'function' ? natMap(name) : natMap?.[name]) ?? address;
}
