// Options that are misspelt, of a wrong type or out of range are errors when they are given.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import rateLimitPlugin from '@fastify/rate-limit';
import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import Fastify from 'fastify';
import { Hold, Lease } from 'redis-ratelimit';
import { rateLimit } from 'redis-ratelimit/express';
import { RateLimitStore } from 'redis-ratelimit/express-rate-limit';
import { rateLimit as fastifyHook } from 'redis-ratelimit/fastify';
import { rateLimitStore } from 'redis-ratelimit/fastify-rate-limit';
import { RateLimitThrottlerStorage } from 'redis-ratelimit/nestjs';
import { ioredis } from 'redis-ratelimit/ioredis';
import { iovalkey } from 'redis-ratelimit/iovalkey';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { counter } from '../dist/hits.js';
import { RateLimiter } from '../dist/limiter.js';
import { connect, serve, startServer } from './support/servers.js';

const CLIENT = { options: {}, on() {}, isOpen: true };
const limiter = ioredis(CLIENT);

const WRONG = {
  limiter: [
    [(options) => ioredis(CLIENT, options), (options) => iovalkey(CLIENT, options), (options) => nodeRedis(CLIENT, options)],
    { outage: 'locl' }, { outage: null }, { outagee: 'local' }, { share: 0.25 }, { toString: 1 }, { timeoutMs: 0 }, { timeoutMs: '250' }, { timeoutMs: 2 ** 31 },
    { queueTimeoutMs: NaN }, { queueTimeoutMs: -1 }, { concurrency: 0 }, { concurrency: 1.5 }, { processes: 0 }, { processes: 0.25 }, { rememberDenials: -1 },
    { rememberDenials: 1.5 }, { rememberDenials: true }, { separately: 'yes' }, { onOutage: 'console.log' }, { onMisconfigured: {} }, { policies: 'free' },
  ],
  rateLimit: [
    [(options) => rateLimit(limiter, '5/m', options), (options) => fastifyHook(limiter, '5/m', options)],
    { count: 'failedd' }, { headers: 'draft-7' }, { prefix: 129 }, { prefix: '64' }, { key: 'ip' }, { cost: 3 }, { skip: true }, { refuse: 429 }, { windowMs: 1 },
  ],
  RateLimitStore: [[(options) => new RateLimitStore(limiter, options)], { prefx: 'a' }, { prefix: 1 }],
  rateLimitStore: [[(options) => rateLimitStore(limiter, options)], { prefx: 'a' }, { prefix: 1 }],
  RateLimitThrottlerStorage: [[(options) => new RateLimitThrottlerStorage(limiter, options)], { algorithm: 'slots' }, { prefix: null }],
  Lease: [[(options) => new Lease(limiter, 'k', '5/m', options)], { ttl: 5 }, { ttlMs: 0 }, { most: 0.5 }],
};

for (const [owner, [makers, ...wrong]] of Object.entries(WRONG)) {
  test(`wrong options are errors at once: ${owner}`, () => {
    for (const make of makers) {
      for (const options of wrong) {
        const [[name]] = Object.entries(options);
        const says = (error) => error instanceof TypeError && error.message.includes(owner) && error.message.includes(name) && error.message.includes('expected');
        assert.throws(() => make(options), says, JSON.stringify(options));
      }
      assert.doesNotThrow(() => make({}));
      assert.throws(() => make(null), TypeError);
    }
  });
}

test('wrong options of methods are errors before anything is sent', async () => {
  const library = { name: 'a:1', prefix: '', isCluster: false, open: () => assert.fail('something is sent') };
  const bare = new RateLimiter(library);
  const held = new Hold('id', {}, { settle: () => assert.fail('it is settled') }, 9_000_000, 9_000_000);
  const limits = [{ key: 'k', rules: '5/m' }];
  const id = { id: 'a', ttlMs: 9000 };
  const turn = [{ flow: 7 }, { weight: 0 }, { weight: 1001 }, { priority: 10 }, { priority: '1' }, { signal: {} }];
  const wrong = {
    check: [(options) => bare.check('k', '5/m', options), { costs: 2 }, { cost: '2' }, { meta: 3 }, { hold: 'a' }, { hold: { ...id, refunds: true } }, { flow: 'a' }],
    checkAll: [(options) => bare.checkAll(limits, options), { costs: 2 }, { cost: null }, { hold: { ...id, ttlMs: '9' } }],
    checkAny: [(options) => bare.checkAny(limits, options), { mosst: true }, { most: 1 }, { hold: id }],
    peek: [(options) => bare.peek('k', '5/m', options), { costs: 2 }, { hold: id }],
    wait: [(options) => bare.wait('k', '5/m', 9, options), { flows: 'a' }, { waitMs: 5 }, ...turn],
    hold: [(options) => bare.hold('k', '5/m', options), { ttl: 5 }, { ttlMs: '5' }, { refund: 'yes' }, { hold: id }, { waitMs: true }, ...turn],
    settle: [(options) => bare.settle('k', 'id', options), { costs: 2 }, { cost: '2' }, { refund: 1 }],
    'settle of a hold': [(options) => held.settle(options), { costs: 2 }, { refunds: true }],
  };
  for (const [method, [call, ...all]] of Object.entries(wrong)) {
    for (const options of all) await assert.rejects(call(options), { name: 'TypeError', message: /expected/ }, `${method} ${JSON.stringify(options)}`);
    await assert.rejects(call(null), TypeError, method);
  }
  assert.equal(held.lost.aborted, false);
});

test('middlewares refuse slots, since a crash would keep one for an hour', () => {
  for (const make of [rateLimit, fastifyHook]) {
    for (const count of ['all', 'failed', 'successful']) {
      for (const rules of ['slots:4', ['5/m', 'slots:4,cost=1']]) {
        assert.throws(() => make(limiter, rules, { count }), { name: 'TypeError', message: /slots:4.*slots are held/ });
      }
    }
  }
});

test('middlewares whose `count` waits for the outcome refuse bans', async (t) => {
  const { port } = await startServer(t);
  const admin = connect(t, port);
  await admin.call('RL.POLICY', 'SET', 'strict', '5/m,ban=1h');
  for (const make of [rateLimit, fastifyHook]) {
    for (const count of ['failed', 'successful']) {
      assert.throws(() => make(limiter, ['9/m', '5/m,ban=1h'], { count }), { name: 'TypeError', message: /ban=1h.*would ban/ });
    }
    assert.doesNotThrow(() => make(limiter, '5/m,ban=1h'));
  }
  const get = await serve(t, express().get('/', rateLimit(ioredis(admin), '@strict', { key: () => 'k', count: 'failed' }), (_req, res) => res.send('here')));
  const logged = t.mock.method(console, 'error', () => {});
  for (let i = 0; i < 7; i++) assert.equal((await get('/')).status, 500);
  assert.match(String(logged.mock.calls[0].arguments), /ban=1h.*would ban/);
  assert.equal((await ioredis(admin).peek('k', '@strict')).remaining, 5, 'nothing stays charged, and nobody is banned');
});

test('texts that are no rules are errors at once', () => {
  const none = ['', '5', '5/', '/m', 'five/m', '5/15', '5 / m', 'bucket:', 'slots:4/s', '5/m,', '5/m, name=a', 5, null, ['5/m', '']];
  const rules = ['5/15m', 'bucket:5/s,burst=9', 'fixed:9/month,tz=+02:00', '@free', '5/m,ban=1m:2m,count=all', 'new:5/m,some=thing', ['5/m', '1/s']];
  for (const make of [rateLimit, fastifyHook, (limiter, rules) => new Lease(limiter, 'k', rules)]) {
    for (const rule of none) assert.throws(() => make(limiter, rule), TypeError, String(rule));
    for (const rule of rules) assert.doesNotThrow(() => make(limiter, rule), String(rule));
  }
});

test('policies with texts that are no rules are errors at once', () => {
  for (const rules of ['', '5 per minute', ['5/m', 5], [], null]) assert.throws(() => ioredis(CLIENT, { policies: { free: rules } }), TypeError, String(rules));
  for (const rules of ['@free', ['5/m', '@plan:pro']]) {
    assert.throws(() => ioredis(CLIENT, { policies: { free: rules } }), { name: 'TypeError', message: /'@.*a policy names no other/ });
  }
  assert.doesNotThrow(() => ioredis(CLIENT, { policies: { free: ['5/m', 'slots:2'] } }));
});

test('parts of a millisecond are rounded up, and a period that no rule can have is refused at start', async (t) => {
  assert.equal(counter(60_000 / 7), 'fixed:1000000000/8572ms,align=first');
  const none = [0, -1, NaN, Infinity, 366 * 86_400_000 + 1];
  for (const ms of none) assert.throws(() => counter(ms), TypeError, String(ms));
  for (const windowMs of none) {
    const logged = [];
    const store = new RateLimitStore(limiter);
    expressRateLimit({ windowMs, store, validate: false, logger: { error: (...words) => logged.push(words.join(' ')), warn() {} } });
    assert.match(logged.join(), /the window is .*, expected 1 to/, String(windowMs));
    await assert.rejects(store.increment('k'), TypeError, 'no other window takes its place');
  }
  await assert.rejects(Fastify().register(rateLimitPlugin, { timeWindow: 0, store: rateLimitStore(limiter) }).ready(), /timeWindow is 0, expected 1 to/);

  const { port } = await startServer(t);
  const storage = new RateLimitThrottlerStorage(ioredis(connect(t, port), { timeoutMs: 10_000 }));
  assert.equal((await storage.increment('k', 1000.7, 10.5, 1000.7, 'default')).totalHits, 1);
  await assert.rejects(storage.increment('k', 0, 10, 0, 'default'), /ttl is 0, expected 1 to/);
  const store = new RateLimitStore(ioredis(connect(t, port), { timeoutMs: 10_000 }));
  store.init({ windowMs: 60_000 / 7 });
  assert.equal((await store.increment('k')).totalHits, 1);
  const real = ioredis(connect(t, port), { timeoutMs: 10_000 });
  await (await real.hold('jobs', 'slots:1', { ttlMs: 5000.5 })).settle();
  assert.equal(await real.pause('paused', 5000.5), 5001);
});
