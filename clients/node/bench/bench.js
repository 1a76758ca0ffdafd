// Measures this client beside rate-limiter-flexible and rate-limit-redis:
//
//     node bench/bench.js outages    # what a request costs while the server is away, in milliseconds
//     node bench/bench.js denials    # answers a second to a client that is denied
//     node bench/bench.js leases     # decisions a second of a hundred connections on one key, and how exactly the limit holds

import { Cluster, Redis } from 'ioredis';
import { RedisStore } from 'rate-limit-redis';
import { RateLimiterMemory, RateLimiterRedis } from 'rate-limiter-flexible';
import { createClient, createCluster } from 'redis';
import { Lease } from 'redis-ratelimit';
import { ioredis } from 'redis-ratelimit/ioredis';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { loseQuorum, startCluster } from '../test/support/cluster.js';
import { startLoading, startServer } from '../test/support/servers.js';

const REQUESTS = 200;
const PATIENCE_MS = 30_000;
const SECONDS = 5;

function client(t, port) {
  return quiet(t, new Redis(port), 'disconnect');
}

function quiet(t, client, end) {
  client.on('error', () => {});
  t.after(() => client[end]());
  return client;
}

/** Sends requests one after the other until the patience ends. Returns the median and longest time, and the total. */
async function costs(request) {
  const found = [];
  const started = performance.now();
  const late = new Promise((resolve) => setTimeout(resolve, PATIENCE_MS, 'late').unref());
  while (found.length < REQUESTS) {
    const before = performance.now();
    if ((await Promise.race([request().catch(() => {}), late])) === 'late') break;
    found.push(performance.now() - before);
  }
  found.sort((a, b) => a - b);
  const ms = (number) => number?.toFixed(2) ?? 'none ended';
  const all = found.length < REQUESTS ? `${found.length} in ${PATIENCE_MS / 1000} s` : ms(performance.now() - started);
  return { median: ms(found[found.length >> 1]), worst: ms(found.at(-1)), all };
}

/** For each state: clients of a server or a cluster, and `begin`, which brings the server into that state, unless it starts there. */
const STATES = {
  fine: onServer(() => {}),
  stopped: onServer(({ pause }) => pause()),
  down: onServer(({ stop }) => stop()),
  loading: async (t) => clients(t, (await startLoading(t)).port),
  OOM: onServer(({ admin }) => admin.config('SET', 'maxmemory', 1)),
  READONLY: onServer(({ admin }) => admin.call('REPLICAOF', '127.0.0.1', 1)),
  'cluster without quorum': async (t) => {
    const nodes = await startCluster(t, undefined, ['--cluster-node-timeout', 500]);
    const redis = quiet(t, new Cluster([{ host: '127.0.0.1', port: nodes[0].port }]), 'disconnect');
    const node = quiet(t, createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${nodes[0].port}` }] }), 'destroy');
    return { redis, node: await node.connect(), begin: () => loseQuorum(nodes) };
  },
};

function onServer(begin) {
  return async (t) => {
    const server = await startServer(t);
    return { ...(await clients(t, server.port)), begin: () => begin({ ...server, admin: client(t, server.port) }) };
  };
}

async function clients(t, port) {
  const node = quiet(t, createClient({ url: `redis://127.0.0.1:${port}` }), 'destroy');
  return { redis: client(t, port), node: await node.connect() };
}

async function outages(t) {
  for (const [state, prepare] of Object.entries(STATES)) {
    const peers = {
      'redis-ratelimit, ioredis': ioredisLocal,
      'redis-ratelimit, node-redis': nodeLocal,
      'rate-limiter-flexible, insurance': flexible,
      'rate-limit-redis': storeOf,
    };
    for (const [name, make] of Object.entries(peers)) {
      const { redis, node, begin } = await prepare(t);
      const request = make(redis, node);
      if (begin) {
        await request();
        await begin();
      }
      console.log(state, name, JSON.stringify(await costs(request)));
    }
  }
}

function ioredisLocal(redis) {
  const limiter = ioredis(redis, { outage: 'local' });
  return () => limiter.check('k', '100000/h');
}

function nodeLocal(_redis, node) {
  const limiter = nodeRedis(node, { outage: 'local' });
  return () => limiter.check('k', '100000/h');
}

function flexible(redis) {
  const points = { points: 100_000, duration: 3600 };
  const limiter = new RateLimiterRedis({ storeClient: redis, ...points, insuranceLimiter: new RateLimiterMemory(points) });
  return () => limiter.consume('k');
}

function storeOf(redis) {
  const store = new RedisStore({ sendCommand: (...args) => redis.call(...args) });
  store.init({ windowMs: 3_600_000 });
  return () => store.increment('k');
}

/** Calls a second, one after the other; a round first, to warm up. */
async function rate(call, seconds = SECONDS) {
  for (let i = 0; i < 10_000; i++) await call();
  const until = performance.now() + seconds * 1000;
  let calls = 0;
  for (; calls % 100 || performance.now() < until; calls++) await call();
  return Math.round(calls / seconds);
}

async function denials(t) {
  const redis = client(t, (await startServer(t)).port);
  const ours = ioredis(redis, { rememberDenials: 10_000 });
  const theirs = new RateLimiterRedis({ storeClient: redis, points: 1, duration: 3600, inMemoryBlockOnConsumed: 1 });
  const plain = ioredis(redis);
  for (let round = 0; round < 3; round++) {
    console.log(JSON.stringify({
      'redis-ratelimit': await rate(() => ours.check('ours', '1/h')),
      'redis-ratelimit, checkAll': await rate(() => ours.checkAll([{ key: 'all', rules: '1/h' }])),
      'rate-limiter-flexible': await rate(() => theirs.consume('theirs').catch(() => {})),
      'redis-ratelimit, not remembered, one at a time': await rate(() => plain.check('ours', '1/h'), 1),
    }));
  }
}

async function leases(t) {
  const { port } = await startServer(t);
  const limiters = await Promise.all(Array.from({ length: 100 }, async () => {
    const redis = client(t, port);
    await redis.ping();
    return ioredis(redis, { timeoutMs: 5000 });
  }));
  for (const [limit, burst] of [[10_000, 1000], [1_000_000, 100_000], [1_000_000_000, 1_000_000_000]]) {
    const rules = `bucket:${limit}/s,burst=${burst}`;
    const takers = {
      'RL.CHECK': limiters.map((limiter) => () => limiter.check(`plain:${limit}`, rules)),
      leases: limiters.map((limiter) => {
        const lease = new Lease(limiter, `lease:${limit}`, rules);
        return () => lease.take();
      }),
    };
    for (const [name, all] of Object.entries(takers)) {
      const started = performance.now();
      let [allowed, decisions] = [0, 0];
      await Promise.all(all.map(async (take) => {
        for (let now = started; now < started + SECONDS * 1000; now = performance.now()) {
          for (let i = 0; i < 100; i++) {
            if ((await take()).verdict === 'allowed') allowed += 1;
            decisions += 1;
          }
          await new Promise(setImmediate);
        }
      }));
      const seconds = (performance.now() - started) / 1000;
      const most = limit * seconds + burst;
      console.log(rules, name, JSON.stringify({ decisions: Math.round(decisions / seconds), allowed, ofMost: (allowed / most).toFixed(4) }));
    }
  }
}

const [, , what] = process.argv;
const ends = [];
await { outages, denials, leases }[what]({ after: (end) => ends.push(end) }); // not under node:test, whose hooks slow promises down
for (const end of ends.reverse()) await end();
