// More checks at once than the limiter sends: they wait for a place, and none counts as an outage.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import rateLimitPlugin from '@fastify/rate-limit';
import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import Fastify from 'fastify';
import { Redis as Iovalkey } from 'iovalkey';
import { RateLimiter, Saturated } from 'redis-ratelimit';
import { rateLimit } from 'redis-ratelimit/express';
import { RateLimitStore } from 'redis-ratelimit/express-rate-limit';
import { rateLimit as fastifyHook } from 'redis-ratelimit/fastify';
import { rateLimitStore } from 'redis-ratelimit/fastify-rate-limit';
import { ioredis } from 'redis-ratelimit/ioredis';
import { iovalkey } from 'redis-ratelimit/iovalkey';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { Places } from '../dist/places.js';
import { connect, connectNodeRedis, serve, startServer } from './support/servers.js';

const CLIENTS = {
  ioredis: async (t, port, options) => ioredis(connect(t, port), options),
  iovalkey: async (t, port, options) => iovalkey(connect(t, port, {}, Iovalkey), options),
  'node-redis': async (t, port, options) => nodeRedis(await connectNodeRedis(t, port), options),
};

for (const [through, limiterOf] of Object.entries(CLIENTS)) {
  test(`a burst of any size is decided by the server (${through})`, async (t) => {
    const { port } = await startServer(t);
    const events = [];
    const options = { outage: 'allow', timeoutMs: 5000, queueTimeoutMs: 60_000, onOutage: (event) => events.push(event) };
    const limiter = await limiterOf(t, port, options);
    await limiter.check('first', '1/h'); // the client is connected
    for (const checks of [300, 1500, 20_000]) {
      const replies = await Promise.all(Array.from({ length: checks }, () => limiter.check(`k:${checks}`, '50/h')));
      const passed = replies.filter(({ verdict }) => verdict === 'allowed').length;
      assert.equal(passed, 50, `${passed} of ${checks} passed: ${events.map(({ error }) => `${error.name} ${error.message}`)}`);
      assert.ok(replies.every(({ source }) => source === 'server'));
    }
    assert.deepEqual([limiter.away, limiter.outages, events], [false, 0, []]);
  });
}

test('no more commands are under way than concurrency says, and each has its own time-out', async () => {
  for (const concurrency of [undefined, 10]) {
    const sent = { now: 0, most: 0, all: 0 };
    const send = async () => {
      sent.now += 1;
      sent.all += 1;
      sent.most = Math.max(sent.most, sent.now);
      await sleep(100);
      sent.now -= 1;
      return [0, 50, 49, 0, 1000];
    };
    // Together the commands take longer than the time-out, each a small part of it.
    const limiter = new RateLimiter({ send, ended: () => false, open: () => Promise.reject(new Error('none')) }, { timeoutMs: 2000, concurrency, outage: 'allow' });
    const checks = concurrency ? 250 : 20_000;
    const replies = await Promise.allSettled(Array.from({ length: checks }, () => limiter.check('k', '50/h')));
    assert.deepEqual([sent.most, limiter.away, limiter.outages], [concurrency ?? 1000, false, 0]);
    assert.ok(replies.every(({ value, reason }) => value?.source === 'server' || reason instanceof Saturated));
    if (concurrency) assert.equal(sent.all, checks);
  }
});

test('a middleware lets exactly the limit of a burst pass', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port), { outage: 'allow', timeoutMs: 5000, queueTimeoutMs: 60_000 });
  const get = await serve(t, express().get('/', rateLimit(limiter, '50/h'), (_req, res) => res.send('here')));
  const statuses = await Promise.all(Array.from({ length: 600 }, async () => (await get('/')).status));
  assert.deepEqual([200, 429].map((wanted) => statuses.filter((status) => status === wanted).length), [50, 550]);
});

test('a request that gets no place in time fails, and is no outage', async (t) => {
  const server = await startServer(t);
  const options = { outage: 'allow', timeoutMs: 20_000, concurrency: 2, queueTimeoutMs: 100 };
  const limiter = ioredis(connect(t, server.port), options);
  await limiter.check('k', '9/h');
  server.pause();
  const held = [limiter.check('k', '9/h'), limiter.check('k', '9/h')];
  const waits = [limiter.check('k', '9/h'), limiter.settle('k', 'id'), limiter.checkAll([{ key: 'k', rules: '9/h' }])];
  await Promise.all(waits.map((wait) => assert.rejects(wait, Saturated)));

  const here = (_req, res) => res.send('here');
  const stored = expressRateLimit({ store: new RateLimitStore(limiter) });
  const app = express().get('/', rateLimit(limiter, '9/h'), here).get('/store', stored, here);
  const get = await serve(t, app);
  const answer = await get('/');
  assert.deepEqual([answer.status, answer.headers.get('retry-after'), await answer.json()], [503, '1', { title: 'Service Unavailable', status: 503 }]);
  const fastify = Fastify();
  t.after(() => fastify.close());
  await fastify.register(rateLimitPlugin, { global: false, store: rateLimitStore(limiter) });
  fastify.get('/', { onRequest: fastifyHook(limiter, '9/h') }, async () => 'here');
  fastify.get('/store', { config: { rateLimit: { max: 5 } } }, async () => 'here');
  const reply = await fastify.inject('/');
  assert.deepEqual([reply.statusCode, reply.headers['retry-after'], reply.json()], [503, '1', { title: 'Service Unavailable', status: 503 }]);
  const [ofExpress, ofFastify] = [await get('/store'), await fastify.inject('/store')];
  assert.deepEqual([ofExpress.status, ofExpress.headers.get('retry-after')], [503, '1']);
  assert.deepEqual([ofFastify.statusCode, ofFastify.headers['retry-after']], [503, '1']);
  assert.doesNotMatch((await ofExpress.text()) + ofFastify.body, /place|dist/);

  server.resume();
  assert.deepEqual((await Promise.all(held)).map(({ source }) => source), ['server', 'server']);
  assert.equal((await limiter.check('k', '9/h')).source, 'server', 'all places are free again');
  assert.deepEqual([limiter.away, limiter.outages], [false, 0]);
});

test('without a queue time-out no command waits for a place', async () => {
  let answer;
  const send = () => new Promise((resolve) => (answer = resolve));
  const limiter = new RateLimiter({ send, ended: () => false }, { concurrency: 1, queueTimeoutMs: 0, timeoutMs: 20_000 });
  for (let i = 0; i < 2; i++) {
    const first = limiter.check('k', '9/h');
    await assert.rejects(Promise.race([limiter.check('k', '9/h'), new Promise((resolve) => setImmediate(resolve))]), Saturated);
    answer([0, 9, 8, 0, 1000]);
    assert.equal((await first).source, 'server', 'a command with a free place passes');
  }
});

test('a full queue of node-redis is no outage', async (t) => {
  const { port } = await startServer(t);
  const limiter = nodeRedis(await connectNodeRedis(t, port, { commandsQueueMaxLength: 10 }), { outage: 'allow' });
  const checks = await Promise.allSettled(Array.from({ length: 100 }, () => limiter.check('k', '50/h')));
  assert.ok(checks.every(({ value, reason }) => value?.source === 'server' || reason instanceof Saturated));
  assert.ok(checks.some(({ reason }) => reason));
  assert.deepEqual([limiter.away, limiter.outages], [false, 0]);
});

test('places are given in order, and a process that was busy still finds its reply', async (t) => {
  const places = new Places(2, 60_000);
  assert.deepEqual([places.take(), places.take()], [undefined, undefined]);
  const order = [];
  const waits = ['a', 'b', 'c'].map((name) => places.take().then(() => order.push(name)));
  for (const wait of waits) {
    places.leave();
    await wait;
  }
  assert.deepEqual(order, ['a', 'b', 'c']);
  for (let i = 0; i < 2; i++) places.leave();
  assert.deepEqual([places.take(), places.take()], [undefined, undefined], 'a place was lost');

  const { port } = await startServer(t);
  for (const [through, limiterOf] of Object.entries(CLIENTS)) {
    const limiter = await limiterOf(t, port, { timeoutMs: 250 });
    await limiter.check('k', '9/h');
    const check = limiter.check('k', '9/h');
    const busyUntil = performance.now() + 600;
    while (performance.now() < busyUntil);
    assert.equal((await check).source, 'server', through);
  }
});
