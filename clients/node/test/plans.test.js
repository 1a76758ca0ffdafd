// Policies that are bound to keys.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { isOutage, Lease } from 'redis-ratelimit';

import { ioredis, nodeRedis } from './support/limiters.js';
import { connect, connectNodeRedis, onEachServer, startServer } from './support/servers.js';

const FREE = '@plan:free';

async function startSelling(t, name) {
  const server = await startServer(t, name);
  const admin = connect(t, server.port);
  for (const policy of ['free 1/h', 'pro 5/h']) await admin.call('RL.POLICY', 'SET', ...policy.split(' '));
  return server;
}

onEachServer(test, 'a plan stands until its end or until it is forgotten', async (t, name) => {
  const { port } = await startSelling(t, name);
  for (const [i, limiter] of [ioredis(connect(t, port)), nodeRedis(await connectNodeRedis(t, port))].entries()) {
    const key = `user:${i}`;
    assert.deepEqual([(await limiter.check(key, FREE)).limit, (await limiter.check(key, FREE)).verdict], [1, 'limited']);
    assert.equal(await limiter.plan(key, 'pro'), undefined);
    assert.equal((await limiter.check(key, FREE)).remaining, 3, 'counts stay');
    assert.deepEqual([await limiter.unplan(key), await limiter.unplan(key)], [true, false]);
    await limiter.plan(key, 'pro', 299.5);
    assert.equal((await limiter.peek(key, FREE)).limit, 5);
    await sleep(310);
    assert.equal((await limiter.peek(key, FREE)).limit, 1);
  }
});

test('a denied customer who buys passes within a second', async (t) => {
  const { port } = await startSelling(t);
  const [limiter, seller] = [ioredis(connect(t, port), { rememberDenials: 10 }), ioredis(connect(t, port))];
  const source = async () => (await limiter.checkAll([{ key: 'a', rules: FREE }])).source;
  assert.deepEqual([await source(), await source(), await source()], ['server', 'server', 'denial']);
  await limiter.plan('a', 'pro');
  assert.equal((await limiter.checkAll([{ key: 'a', rules: FREE }])).verdict, 'allowed', 'the limiter that sold the plan asks at once');
  await limiter.unplan('a');
  assert.deepEqual([await source(), await source()], ['server', 'denial']);
  await seller.plan('a', 'pro');
  await sleep(1000);
  assert.equal(await source(), 'server');
});

test('a denied lease asks the server again within a second', async (t) => {
  const { port } = await startSelling(t);
  const limiter = ioredis(connect(t, port));
  const lease = new Lease(limiter, 'a', FREE);
  t.after(() => lease.close());
  const sources = [await lease.take(), await lease.take(), await lease.take()].map(({ source }) => source);
  assert.deepEqual(sources, ['server', 'server', 'denial']);
  await limiter.plan('a', 'pro');
  await sleep(1000);
  assert.equal((await lease.take()).verdict, 'allowed');
});

test('without the server the default decides', async (t) => {
  const server = await startServer(t);
  const local = ioredis(connect(t, server.port), { outage: 'local', policies: { free: '1/h', pro: '5/h' } });
  await server.stop();
  for (const send of [() => local.plan('k', 'pro'), () => local.unplan('k')]) await assert.rejects(send(), isOutage);
  assert.deepEqual([(await local.check('k', FREE)).verdict, (await local.check('k', FREE)).verdict], ['allowed', 'limited']);
});
