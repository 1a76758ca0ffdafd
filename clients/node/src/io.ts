// ioredis, and iovalkey, a fork of ioredis.

import type { Connection, Send, Server } from './server.js';

/** What the clients of both libraries have in common. */
interface Client {
  options: { keyPrefix?: string | undefined };
  status: string;
  sendCommand(command: never): unknown;
  disconnect(reconnect?: boolean): void;
  connect(): Promise<unknown>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  /** Only a cluster client has this: asks for the cluster's map again, unless such a question is under way. */
  refreshSlotsCache?(): void;
}

interface KeyedCommand {
  getKeys(): (string | Buffer)[];
}

/** The class `Command` of the library. */
type CommandClass = new (name: string, args: string[], options: { replyEncoding: 'utf8'; readOnly: boolean }) => KeyedCommand;

/** The options in which a connection for one caller differs from the client: no retries, and no time-out but the caller's. */
const ALONE = {
  lazyConnect: true,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  commandTimeout: undefined,
  socketTimeout: undefined,
  retryStrategy: () => null,
};

/**
 * These libraries know which arguments are keys only for the commands in their table. Any other command that `call`
 * sends gets no `keyPrefix`. In a cluster it goes to some node, which replies MOVED; then the library asks for the
 * cluster's map again. Here each command names its keys. Unlike a script of `defineCommand`, this costs the server nothing
 * more, needs no right to run scripts, and lets `RL.WAIT` wait.
 */
export function serverOf(client: Client & { duplicate(...args: never[]): Client }, Command: CommandClass): Server {
  const sendBy = (client: Client): Send => (head, keys, tail) => {
    const prefix = client.options.keyPrefix ?? '';
    const prefixed = prefix ? keys.map((key) => prefix + key) : keys;
    const args = [...head.slice(1), ...prefixed, ...tail];
    const command = new Command(head[0]!, args, { replyEncoding: 'utf8', readOnly: head[0] === 'RL.PEEK' });
    command.getKeys = () => prefixed;
    return client.sendCommand(command as never) as Promise<unknown>;
  };
  const duplicate = client.duplicate.bind(client) as (...args: unknown[]) => Client;
  const open = async (signal: AbortSignal): Promise<Connection> => {
    const isCluster = 'nodes' in client;
    const alone = isCluster
      ? duplicate([], { lazyConnect: true, clusterRetryStrategy: () => null, redisOptions: { ...redisOptions(client), ...ALONE } })
      : duplicate(ALONE);
    let reason: Error | undefined;
    alone.on('error', (error) => (reason = error)); // such as WRONGPASS, which `connect` does not report
    signal.addEventListener('abort', () => alone.disconnect());
    await alone.connect().catch((error: Error) => Promise.reject(reason ?? error));
    return { send: sendBy(alone), alive: () => alone.status === 'ready', close: () => alone.disconnect() };
  };
  return { send: sendBy(client), lost: () => client.refreshSlotsCache?.(), ended: () => client.status === 'end', open };
}

function redisOptions(client: Client): object {
  return (client.options as { redisOptions?: object }).redisOptions ?? {};
}
