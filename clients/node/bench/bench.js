// Measures this client beside rate-limiter-flexible:
//
//     node bench/bench.js denials    # answers a second to a client that is denied
//     node bench/bench.js cost       # checks a second beside the client library alone, of one caller and of eight processes
//     node bench/bench.js leases     # decisions a second of a hundred connections on one key, and how exactly the limit holds

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import { createClient } from 'redis';
import { Lease } from 'redis-ratelimit';
import { ioredis } from 'redis-ratelimit/ioredis';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { startServer } from '../test/support/servers.js';

const SECONDS = 5;

function client(t, port) {
  return quiet(t, new Redis(port), 'disconnect');
}

function quiet(t, client, end) {
  client.on('error', () => {});
  t.after(() => client[end]());
  return client;
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

const RULE = 'bucket:1000000/s';
const [TURNS, TURN_MS, WARM_UP] = [60, 150, 20_000];

/** Checks in turns that all processes take at the same time: by the limiter, then by its library alone. */
async function turns(t, [library, port]) {
  const redis = library === 'ioredis' ? client(t, port) : quiet(t, createClient({ url: `redis://127.0.0.1:${port}` }), 'destroy');
  if (library !== 'ioredis') await redis.connect();
  const limiter = (library === 'ioredis' ? ioredis : nodeRedis)(redis, { timeoutMs: 5000 });
  const calls = [() => limiter.check('key', RULE), () => (library === 'ioredis' ? redis.call('RL.CHECK', 'key', RULE) : redis.sendCommand(['RL.CHECK', 'key', RULE]))];
  const counts = [0, 0];
  for (let i = 0; i < WARM_UP; i++) await calls[i % 2]();
  process.send('ready');
  const [begin] = await once(process, 'message');
  for (let turn = 0; turn < TURNS; turn++) {
    await sleep(Math.max(0, begin + turn * TURN_MS - Date.now()));
    for (const until = begin + (turn + 1) * TURN_MS; Date.now() < until; counts[turn % 2]++) await calls[turn % 2]();
  }
  await limiter.close();
  process.send(counts);
  process.disconnect();
}

async function cost(t) {
  const { port } = await startServer(t);
  for (const library of ['ioredis', 'node-redis']) {
    for (const processes of [1, 8]) {
      const callers = Array.from({ length: processes }, () => fork(process.argv[1], ['turns', library, port]));
      const told = () => Promise.all(callers.map(async (caller) => (await once(caller, 'message'))[0]));
      await told(); // all are connected and warm
      const begin = Date.now() + 100;
      for (const caller of callers) caller.send(begin);
      const found = await told();
      const [ours, alone] = [0, 1].map((who) => found.reduce((sum, counts) => sum + counts[who], 0));
      console.log(`${library}, ${processes} processes: ${(ours / alone).toFixed(2)} of ${Math.round((alone / TURNS / TURN_MS) * 2000)} a second`);
    }
  }
}

const [, , what, ...rest] = process.argv;
const ends = [];
await { cost, denials, leases, turns }[what]({ after: (end) => ends.push(end) }, rest); // not under node:test, whose hooks slow promises down
for (const end of ends.reverse()) await end();
