// Real servers with the module, on free ports of this machine and in temporary folders, until a test ends.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';
import { createClient } from 'redis';

export const ROOT = resolve(import.meta.dirname, '../../../..');
export const MODULE = process.env.RATELIMIT_MODULE ?? join(ROOT, 'target/faulty/libredis_ratelimit.so');
export const SERVERS = process.env.RATELIMIT_SERVERS ?? join(ROOT, '.cache/servers');
const READY_MS = 30_000;

/** Options of a test that only `make test-long` runs. */
export const LONG = { skip: process.env.RATELIMIT_LONG ? false : 'make test-long runs this' };

/** The servers to test: all, or those that RATELIMIT_ONLY names. */
export const NAMES = process.env.RATELIMIT_ONLY?.split(/[ ,]+/) ?? [
  'redis-6.2',
  'redis-7.0',
  'redis-8.2',
  'valkey-8.1',
  'valkey-9.1',
];

/** Starts a server; it ends with the test `t`, or when `stop` is called. The server is ready when it answers a PING by `answer`. A `bare` server lacks the module. `config` has lines for its file. */
export async function startServer(t, name = NAMES.at(-1), options = [], answer = 'PONG', { port: wanted, bare = false, config = '' } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'ratelimit-'));
  const port = wanted ?? (await freePort());
  const [log, file] = ['log', 'conf'].map((name) => join(folder, name));
  await writeFile(file, config);
  const args = [file, '--port', port, '--bind', '127.0.0.1', '--dir', folder, '--logfile', log, '--save', '', ...options];
  const server = spawn(join(SERVERS, name, 'server'), [...args, ...(bare ? [] : ['--loadmodule', MODULE])].map(String), { stdio: 'ignore' });
  const ended = once(server, 'exit');
  const stop = async () => {
    server.kill('SIGKILL');
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  t.after(stop);
  await ready(port, server, log, answer);
  const pause = () => server.kill('SIGSTOP');
  const resume = () => server.kill('SIGCONT');
  return { port, folder, stop, pause, resume };
}

/** A client of ioredis for tests: it fails at once where a client in production may wait. */
export function connect(t, port, options = {}, Client = Redis) {
  const client = new Client(port, { maxRetriesPerRequest: 0, disconnectTimeout: 0, ...options });
  client.on('error', () => {}); // each command reports it
  t.after(() => client.disconnect());
  return client;
}

/** A client of node-redis. */
export async function connectNodeRedis(t, port, options = {}) {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, ...options });
  client.on('error', () => {}); // each command reports it
  t.after(() => client.destroy());
  return client.connect();
}

/** Runs a test on each server. */
export function onEachServer(test, title, body) {
  for (const name of NAMES) test(`${title} (${name})`, (t) => body(t, name));
}

/** Waits until something holds. */
export async function until(holds) {
  const late = Date.now() + READY_MS;
  while (!(await holds())) {
    if (Date.now() > late) throw new Error(`not within ${READY_MS} ms: ${holds}`);
    await sleep(20);
  }
}

let ports = process.pid * 997;

/**
 * A free port below the range of outgoing connections, one of which could take the port before the server does. Each
 * process begins at another port, so processes that run at once do not try the same one.
 */
export async function freePort() {
  for (;;) {
    const port = 10_000 + (ports++ % 20_000);
    const listener = createServer();
    const isFree = await new Promise((answer) => {
      listener.once('error', () => answer(false)).listen(port, '127.0.0.1', () => answer(true));
    });
    if (!isFree) continue;
    listener.close();
    await once(listener, 'close');
    return port;
  }
}

async function ready(port, server, log, answer) {
  const retry = { maxRetriesPerRequest: null, retryStrategy: () => 20, enableReadyCheck: false, disconnectTimeout: 0 };
  const client = new Redis(port, retry);
  client.on('error', () => {}); // not yet
  const late = sleep(READY_MS, 'late', { ref: false });
  const outcome = await Promise.race([client.ping().catch(({ message }) => message), once(server, 'exit'), late]);
  client.disconnect();
  if (!`${outcome}`.startsWith(answer)) throw new Error(`the server did not start:\n${await readFile(log, 'utf8')}`);
}

/** Serves an application of Express on a free port until a test ends; replies with a `fetch` of its paths. */
export async function serve(t, app) {
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address();
  return (path, options) => fetch(`http://127.0.0.1:${port}${path}`, { headers: { connection: 'close' }, ...options });
}
