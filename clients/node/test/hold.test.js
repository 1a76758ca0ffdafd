// Holds, waits, costs by name and leases, on real servers.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Cluster } from 'ioredis';
import { createCluster } from 'redis';
import { Lease, RateLimiter } from 'redis-ratelimit';

import { startCluster } from './support/cluster.js';
import { ioredis, nodeRedis } from './support/limiters.js';
import { connect, connectNodeRedis, onEachServer, startServer, until } from './support/servers.js';

async function limiters(t, port, options) {
  return [ioredis(connect(t, port), options), nodeRedis(await connectNodeRedis(t, port), options)];
}

/** How many clients wait in line. */
async function waiting(admin) {
  return Number(/waiting_clients:(\d+)/.exec(await admin.info('ratelimit'))[1]);
}

onEachServer(test, 'costs by name are corrected when a hold is settled', async (t, name) => {
  const { port } = await startServer(t, name);
  const rules = ['50/m,cost=1', 'bucket:40000/d,name=in', 'bucket:8000/d,name=out'];
  for (const [i, limiter] of (await limiters(t, port)).entries()) {
    const key = `llm:${i}`;
    const left = async () => (await limiter.peekAll(key, rules)).rules.map(({ remaining }) => remaining);
    const hold = await limiter.hold(key, rules, { cost: { in: 3000, out: 1000 }, ttlMs: 60_000 });
    assert.deepEqual(await left(), [49, 37_000, 7000]);
    assert.equal(await hold.settle({ cost: { out: 250 } }), true);
    assert.deepEqual(await left(), [49, 37_000, 7750]);
    const back = await limiter.hold(key, rules, { cost: { in: 3000, out: 1000 }, ttlMs: 60_000 });
    assert.equal(await back.refund(), true);
    assert.deepEqual(await left(), [49, 37_000, 7750]);
    assert.equal(await back.settle(), false);
    const range = await limiter.hold(`${key}:range`, '10/m', { cost: [1, 100], ttlMs: 60_000 });
    assert.equal(range.reply.granted, 10);
    assert.equal(await limiter.renew(`${key}:range`, range.id, 1000), true);
    assert.equal(await limiter.settle(`${key}:range`, range.id, { cost: 4 }), true);
    assert.deepEqual([await limiter.renew(key, 'unknown', 1000), await limiter.settle(key, 'unknown')], [false, false]);
  }
});

test('an unblocked client waits again', async (t) => {
  const { port } = await startServer(t);
  const admin = connect(t, port);
  const limiter = ioredis(connect(t, port), { outage: 'deny' });
  await limiter.check('k', 'slots:1', { hold: { id: 'b', ttlMs: 9000 } });
  const waits = limiter.wait('k', 'slots:1', 20_000, { hold: { id: 'a', ttlMs: 9000 } });
  await until(async () => (await waiting(admin)) === 1);
  const [, id] = /id=(\d+) [^\n]*flags=b/.exec(await admin.client('LIST'));
  await admin.client('UNBLOCK', id, 'ERROR');
  await until(async () => (await waiting(admin)) === 1 && (await admin.info('errorstats')).includes('errorstat_UNBLOCKED:count=1'));
  await limiter.settle('k', 'b');
  const { verdict, source } = await waits;
  assert.deepEqual({ verdict, source }, { verdict: 'allowed', source: 'server' });
  assert.ok(!limiter.away);
});

test('callers wait in a cluster, whose keys have the keyPrefix of the client', async (t) => {
  const [{ port }] = await startCluster(t, undefined);
  const io = new Cluster([{ host: '127.0.0.1', port }], { keyPrefix: 'app:' });
  const node = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] });
  for (const client of [io, node]) client.on('error', () => {});
  t.after(() => [io.disconnect(), node.destroy()]);
  await node.connect();
  for (const limiter of [ioredis(io), nodeRedis(node)]) {
    const keys = ['a', 'b', 'c', 'd', 'e'];
    const waits = keys.map((key) => limiter.wait(key, '1/s', 5000));
    assert.ok((await Promise.all(waits)).every(({ verdict }) => verdict === 'allowed'));
    assert.equal((await limiter.wait('a', '1/s', 5000)).verdict, 'allowed');
  }
  await ioredis(io).check('f', '9/h');
  assert.equal(await io.exists('f'), 1, 'the key is app:f');
});

test('a denial that is decided before units come back is forgotten', async () => {
  const replies = [];
  const connection = { send: () => new Promise((resolve) => replies.push(resolve)), alive: () => true, close() {} };
  const library = { name: 'a:1', prefix: '', isCluster: false, open: async () => connection };
  const limiter = new RateLimiter(library, { rememberDenials: 9, timeoutMs: 60_000 });
  const frees = [
    () => limiter.settle('k', 'id', { refund: true }), () => limiter.settle('k', 'id', { cost: 1 }),
    () => limiter.refund('k', 1), () => limiter.reset('k'), () => limiter.resume('k'),
  ];
  for (const free of frees) {
    const [freed, denied] = [free(), limiter.check('k', '1/h')];
    await until(() => replies.length === 2);
    const [release, deny] = replies.splice(0);
    deny([1, 1, 0, 900_000, 900_000]);
    assert.equal((await denied).source, 'server');
    assert.equal((await limiter.check('k', '1/h')).source, 'denial');
    release(1);
    await freed;
    const next = limiter.check('k', '1/h');
    await until(() => replies.length === 1);
    replies.pop()([0, 1, 0, 0, 900_000]);
    assert.equal((await next).source, 'server', String(free));
  }
});

onEachServer(test, 'units under shadow rules are leased and settled, and an exempt key has no lease', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  const limiter = ioredis(connect(t, port));
  const checks = async () => Number(/cmdstat_rl\.check:calls=(\d+)/i.exec(await admin.info('commandstats'))[1]);
  const take = async (lease, times) => {
    for (let i = 0; i < times; i++) assert.equal((await lease.take()).verdict, 'allowed');
  };
  const shadow = new Lease(limiter, 'k', 'bucket:100/d,shadow', { ttlMs: 600_000, most: 50 });
  await take(shadow, 20);
  assert.ok((await checks()) < 20, 'the lease takes units ahead');
  await shadow.close();
  assert.equal((await limiter.peekAll('k', 'bucket:100/d,shadow')).rules[0].remaining, 80);
  assert.match((await limiter.call('RL.INFO', 'k')).join(), /holds,0,/);

  await admin.call('RL.EXEMPT', 'friend');
  const exempt = new Lease(limiter, 'friend', '0/s');
  await take(exempt, 4);
  await admin.call('RL.UNEXEMPT', 'friend');
  assert.equal((await exempt.take()).verdict, 'limited', 'the lease took nothing ahead');
  await exempt.close();
});

test('close logs each hold that is not settled', async (t) => {
  t.mock.method(console, 'warn', () => {});
  const { port, stop } = await startServer(t);
  const limiter = ioredis(connect(t, port), { onOutage: () => {} });
  const take = () => limiter.hold('k', 'slots:3', { ttlMs: 60_000 });
  const holds = [await take(), await take(), await take()];
  await stop();
  for (const hold of holds.slice(0, 2)) await hold[Symbol.asyncDispose]();
  assert.equal(console.warn.mock.callCount(), 0);
  await limiter.close();
  await holds[2][Symbol.asyncDispose]();
  const lines = console.warn.mock.calls.map(({ arguments: [line] }) => line);
  assert.deepEqual(holds.map(({ id }) => lines.filter((line) => line.includes(id)).length), [1, 1, 1]);
});
