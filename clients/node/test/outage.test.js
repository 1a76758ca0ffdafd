// What the limiter answers while real servers are stopped, dead, full, demoted or without a quorum.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import express from 'express';
import Fastify from 'fastify';
import { Cluster } from 'ioredis';
import { Cluster as IovalkeyCluster, Redis as Iovalkey } from 'iovalkey';
import { createCluster } from 'redis';
import { rateLimit } from 'redis-ratelimit/express';
import { rateLimit as fastifyHook } from 'redis-ratelimit/fastify';
import { ioredis } from 'redis-ratelimit/ioredis';
import { iovalkey } from 'redis-ratelimit/iovalkey';
import { RateLimitThrottlerStorage } from 'redis-ratelimit/nestjs';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { beginMove, loseQuorum, startCluster } from './support/cluster.js';
import { connect, connectNodeRedis, freePort, serve, startLoading, startServer, until } from './support/servers.js';

/** Limiters on clients as applications use them: with their own offline queues and retries. */
async function limiters(t, port, options) {
  const asDefault = { maxRetriesPerRequest: 20 };
  return {
    ioredis: ioredis(connect(t, port, asDefault), options),
    iovalkey: iovalkey(connect(t, port, asDefault, Iovalkey), options),
    'node-redis': nodeRedis(await connectNodeRedis(t, port), options),
  };
}

async function timed(work) {
  const started = performance.now();
  return [await work(), performance.now() - started];
}

for (const how of ['pause', 'stop']) {
  for (const through of ['ioredis', 'iovalkey', 'node-redis']) {
    test(`a server that is away costs three time-outs, then nothing, until it is back (${how}, ${through})`, async (t) => {
      const server = await startServer(t);
      const events = [];
      const onOutage = (event) => {
        events.push(event);
        throw new Error('a listener at fault');
      };
      const limiter = (await limiters(t, server.port, { outage: 'local', timeoutMs: 500, onOutage }))[through];
      await until(async () => (await limiter.check('connected', '900/h')).source === 'server');
      const check = () => limiter.check('k', '4/h');
      assert.equal((await check()).source, 'server');
      const before = limiter.outages;
      events.length = 0;
      await server[how]();
      for (let i = 0; i < 3; i++) {
        const [{ source }, ms] = await timed(check);
        assert.equal(source, 'local');
        assert.ok(ms < 5000, `${ms} ms`);
      }
      assert.deepEqual(events.map(({ away }) => away), [true]);
      const more = async () => [await check(), await check(), await limiter.checkAll([{ key: 'k', rules: '4/h' }])];
      const [replies, ms] = await timed(more);
      assert.deepEqual(replies.map(({ verdict }) => verdict), ['allowed', 'limited', 'limited'], 'the process limits alone');
      assert.ok(ms < 500, `${ms} ms`); // they wait for no time-out
      assert.deepEqual([limiter.away, limiter.outages], [true, before + 6]);
      if (how === 'stop') return; // it is gone for good
      server.resume();
      await until(async () => (await check()).source === 'server');
      assert.equal(limiter.away, false);
      assert.equal(events.length, 2);
      assert.ok(events[1].answered >= 3 && events[1].error instanceof Error);
    });
  }
}

test('the option outage chooses the answer, and raise is the default', async (t) => {
  const server = await startServer(t);
  const client = connect(t, server.port);
  const [raise, allow, deny] = [undefined, 'allow', 'deny'].map((outage) => ioredis(client, outage && { outage }));
  await server.stop();
  for (let i = 0; i < 5; i++) await assert.rejects(raise.check('k', '5/m'), /closed|ECONNREFUSED|retries|no reply/);
  assert.equal(raise.away, true);
  await assert.rejects(raise.reset('k'), /closed|ECONNREFUSED|retries|no reply/);
  const { waitMs, ...passed } = await allow.check('k', '5/m');
  assert.deepEqual(passed, { verdict: 'allowed', limit: -1, remaining: -1, resetMs: 0, source: 'outage' });
  assert.deepEqual({ ...(await deny.check('k', '5/m')) }, { verdict: 'limited', limit: 0, remaining: 0, waitMs: 1000, resetMs: 1000, source: 'outage' });
  assert.equal((await deny.checkAll([{ key: 'a', rules: '5/m' }, { key: 'b', rules: '5/m' }])).verdict, 'limited');
});

test('without the server a report has its key, and a range what it was granted', async (t) => {
  const server = await startServer(t);
  const client = connect(t, server.port);
  const pool = [{ key: 'a', rules: '5/m' }, { key: 'b', rules: '1/m' }];
  await server.stop();
  for (const [outage, granted] of Object.entries({ allow: [9, 9], deny: [0, 0], local: [5, 1] })) {
    const limiter = ioredis(client, { outage });
    const all = await limiter.checkAll([{ key: 'c', rules: '5/m' }, { key: 'd', rules: '1/m' }], { cost: [1, 9] });
    const any = await limiter.checkAny(pool, { cost: [1, 9] });
    assert.deepEqual([any.key, all.key], ['a', 'c'], outage);
    assert.deepEqual([any.granted, all.granted], granted, outage);
    assert.equal((await limiter.check('e', '5/m', { cost: [1, 9] })).granted, granted[0], outage);
    assert.equal('granted' in (await limiter.check('f', '5/m')), false, outage);
    for (const { key } of any.rules) assert.equal(key, 'a', outage);
  }
});

test('a wrong request is an error under every option outage, and does not count as an outage', async (t) => {
  const { port } = await startServer(t);
  await connect(t, port).set('text', 'x');
  for (const [through, limiter] of Object.entries(await limiters(t, port, { outage: 'allow' }))) {
    for (let i = 0; i < 5; i++) await assert.rejects(limiter.check('text', '5/m'), /WRONGTYPE/, through);
    await assert.rejects(limiter.check('k', '5/x'), /ERR rule/, through);
    await assert.rejects(limiter.call('RL.NOTHING', 'k'), /unknown command/, through);
    assert.deepEqual([limiter.away, limiter.outages], [false, 0]);
  }
});

test('a full server and a replica are outages, and peeks still work', async (t) => {
  const { port } = await startServer(t);
  const admin = connect(t, port);
  const states = {
    OOM: [['CONFIG', 'SET', 'maxmemory', 1], ['CONFIG', 'SET', 'maxmemory', 0]],
    READONLY: [['REPLICAOF', '127.0.0.1', 1], ['REPLICAOF', 'NO', 'ONE']],
  };
  for (const [state, [begin, end]] of Object.entries(states)) {
    const errors = [];
    const found = await limiters(t, port, { outage: 'local', onOutage: ({ error }) => errors.push(error.message) });
    await admin.call(...begin);
    for (const [through, limiter] of Object.entries(found)) {
      assert.equal((await limiter.peek('k', '5/m')).source, 'server', `${state} ${through}`);
      for (let i = 0; i < 3; i++) assert.equal((await limiter.check('k', '5/m')).source, 'local', `${state} ${through}`);
      assert.match(errors.pop(), new RegExp(`^${state}`));
    }
    await admin.call(...end);
    await Promise.all(Object.values(found).map((limiter) => until(async () => (await limiter.check('k', '500/m')).source === 'server')));
  }
});

/** How to bring a server, or a node of a cluster, to each of these replies. */
const REPLIES = {
  BUSY: on(['--busy-reply-threshold', 1], async ({ port }, t) => {
    connect(t, port).call('EVAL', 'while true do end', 0).catch(() => {});
    const other = connect(t, port, { enableReadyCheck: false });
    await until(async () => (await other.ping().catch(({ message }) => message)).startsWith('BUSY'));
  }),
  MISCONF: on(['--save', '3600 1000000', '--dbfilename', 'folder'], async ({ port, folder }, t) => {
    const admin = connect(t, port);
    await mkdir(join(folder, 'folder')); // no file can take its place
    await admin.bgsave();
    await until(async () => (await admin.info('persistence')).includes('rdb_last_bgsave_status:err'));
  }),
  NOREPLICAS: on(['--min-replicas-to-write', 1]),
  OOM: on(['--maxmemory', 1]),
  LOADING: startLoading,
  READONLY: on(['--replicaof', '127.0.0.1 1']),
  MASTERDOWN: on(['--replicaof', '127.0.0.1 1', '--replica-read-only', 'no', '--replica-serve-stale-data', 'no'], undefined, 'MASTERDOWN'),
  CLUSTERDOWN: async (t) => startServer(t, undefined, ['--cluster-enabled', 'yes', '--cluster-port', await freePort()]),
  TRYAGAIN: async (t) => {
    const nodes = await startCluster(t);
    const slot = await nodes[0].client.cluster('KEYSLOT', '{a}1');
    const [to, from] = nodes.slice(1, 3); // of the last third
    await ioredis(from.client).check('{a}1', '5/m');
    await beginMove(slot, from, to);
    return from;
  },
};

function on(options, prepare, answer) {
  return async (t) => {
    const server = await startServer(t, undefined, options, answer);
    await prepare?.(server, t);
    return server;
  };
}

for (const [code, start] of Object.entries(REPLIES)) {
  test(`a server that replies ${code} is an outage`, async (t) => {
    const { port } = await start(t);
    const errors = [];
    const onOutage = ({ error }) => errors.push(error.message);
    const options = { outage: 'local', timeoutMs: 10_000, onOutage };
    const atOnce = { enableReadyCheck: false };
    for (const limiter of [
      ioredis(connect(t, port, atOnce), options),
      iovalkey(connect(t, port, atOnce, Iovalkey), options),
      nodeRedis(await connectNodeRedis(t, port), options),
    ]) {
      const limits = [{ key: '{a}1', rules: '9/m' }, { key: '{a}2', rules: '9/m' }];
      for (let i = 0; i < 3; i++) assert.equal((await limiter.checkAll(limits)).source, 'local');
      assert.match(errors.pop() ?? '', new RegExp(`^${code} `));
    }
  });
}

test('a cluster decides keys of several slots separately, and is an outage without a quorum or with every node dead', async (t) => {
  const nodes = await startCluster(t, undefined, ['--cluster-node-timeout', 2000]);
  const [{ port }] = nodes;
  const io = (Client) => {
    const client = new Client([{ host: '127.0.0.1', port }]);
    client.on('error', () => {});
    t.after(() => client.disconnect());
    return client;
  };
  const client = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] });
  client.on('error', () => {});
  t.after(() => client.destroy());
  await client.connect();
  const options = { outage: 'local', separately: true };
  const found = { ioredis: ioredis(io(Cluster), options), iovalkey: iovalkey(io(IovalkeyCluster), options), 'node-redis': nodeRedis(client, options) };
  const together = ioredis(io(Cluster), { timeoutMs: 10_000 });

  for (const [through, limiter] of Object.entries(found)) {
    const limits = [{ key: `${through}:ip`, rules: ['9/h', 'bucket:9/h,cost=2'] }, { key: `${through}:user`, rules: '1/h,name=user' }];
    await assert.rejects(together.checkAll(limits), /CROSSSLOT/);
    await until(async () => (await limiter.check(`${through}:connected`, '900/h')).source === 'server');
    const first = await limiter.checkAll(limits);
    assert.deepEqual([first.verdict, first.rules.map(({ key, remaining }) => [key, remaining])],
      ['allowed', [[limits[0].key, 8], [limits[0].key, 7], [limits[1].key, 0]]], through);
    const denied = await limiter.checkAll(limits);
    assert.deepEqual([denied.verdict, denied.key, denied.source], ['limited', limits[1].key, 'server'], through);
    const { rules } = await limiter.peekAll(limits[0].key, limits[0].rules);
    assert.deepEqual(rules.map(({ remaining }) => remaining), [8, 7], 'a denial gives charges back');
  }

  await loseQuorum(nodes);
  for (const [through, limiter] of Object.entries(found)) {
    for (let i = 0; i < 4; i++) {
      const [{ source }, ms] = await timed(() => limiter.check(`${through}:quorum`, '9/h'));
      assert.equal(source, 'local', through);
      assert.ok(ms < 5000, `${through}: ${ms} ms`);
    }
    assert.equal(limiter.away, true, through);
  }
  for (const { server } of nodes) await server.stop();
  await sleep(1100); // until the breakers let a request try
  for (const [through, limiter] of Object.entries(found)) {
    const [{ source }, ms] = await timed(() => limiter.check(`${through}:dead`, '9/h'));
    assert.equal(source, 'local', through);
    assert.ok(ms < 5000, `${through}: ${ms} ms`);
  }
});

test('a cluster whose node hangs is followed to its successor', async (t) => {
  const nodes = await startCluster(t, undefined, ['--cluster-node-timeout', 500]);
  const [hangs, { port }] = nodes;
  const clients = [Cluster, IovalkeyCluster].map((Client) => {
    const client = new Client([{ host: '127.0.0.1', port }]);
    client.on('error', () => {});
    t.after(() => client.disconnect());
    return client;
  });
  const defaults = { pingInterval: 500, socket: { socketTimeout: 1000, reconnectStrategy: 100 } };
  const rootNodes = [{ url: `redis://127.0.0.1:${port}` }];
  const node = createCluster({ rootNodes, defaults, topologyRefreshOnReconnectionAttemptStrategy: 1000 });
  node.on('error', () => {});
  t.after(() => node.destroy());
  await node.connect();
  const limiters = [ioredis(clients[0], { outage: 'allow' }), iovalkey(clients[1], { outage: 'allow' }), nodeRedis(node, { outage: 'allow' })];
  const served = (limiter) => until(async () => (await limiter.check('{b}', '500/h')).source === 'server'); // of the first node
  await Promise.all(limiters.map(served));
  hangs.server.pause();
  await until(async () => (await nodes.at(-1).client.info('replication')).includes('role:master'));
  await Promise.all(limiters.map(served));
});

test('middlewares and stores answer as the option outage says', async (t) => {
  const server = await startServer(t);
  const client = connect(t, server.port);
  const limits = (req) => ({ key: `ip:${req.ip}`, rules: '2/h,name=hour' });
  const outages = ['raise', 'allow', 'deny', 'local'];
  const app = express();
  const fastify = Fastify();
  t.after(() => fastify.close());
  const storages = {};
  for (const outage of outages) {
    const limiter = ioredis(client, { outage });
    app.get(`/${outage}`, rateLimit(limiter, limits), (_req, res) => res.send('here'));
    fastify.get(`/${outage}`, { onRequest: fastifyHook(limiter, limits) }, async () => 'here');
    storages[outage] = new RateLimitThrottlerStorage(limiter);
  }
  app.use((_error, _req, res, _next) => res.sendStatus(500));
  t.mock.method(console, 'warn', () => {});
  const get = await serve(t, app);
  await server.stop();
  const ofExpress = {};
  const ofFastify = {};
  for (const outage of outages) {
    ofExpress[outage] = [];
    ofFastify[outage] = [];
    for (let i = 0; i < 3; i++) {
      ofExpress[outage].push((await get(`/${outage}`)).status);
      ofFastify[outage].push((await fastify.inject(`/${outage}`)).statusCode);
    }
  }
  assert.deepEqual(ofExpress, { raise: [503, 503, 503], allow: [200, 200, 200], deny: [503, 503, 503], local: [200, 429, 429] });
  assert.deepEqual(ofFastify, { raise: [503, 503, 503], allow: [200, 200, 200], deny: [503, 503, 503], local: [200, 429, 429] });
  for (const outage of ['deny', 'raise']) {
    const denied = await get(`/${outage}`);
    assert.deepEqual([denied.headers.get('retry-after'), await denied.json()], ['1', { title: 'Service Unavailable', status: 503 }]);
  }
  const blocked = async (outage) => (await storages[outage].increment('k', 60_000, 1, 0, 'default')).isBlocked;
  assert.deepEqual([await blocked('allow'), await blocked('deny'), await blocked('local'), await blocked('local')], [false, true, false, true]);
  await assert.rejects(blocked('raise'));
});
