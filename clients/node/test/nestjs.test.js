import 'reflect-metadata';

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Controller, Get, Module } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { Throttle, ThrottlerGuard, ThrottlerModule, ThrottlerStorageService } from '@nestjs/throttler';
import { RateLimitThrottlerStorage } from 'redis-ratelimit/nestjs';

import { ioredis } from './support/limiters.js';
import { connect, NAMES, onEachServer, startServer } from './support/servers.js';

/** The answers of a storage to hits with pauses of milliseconds between them, and when it was asked and replied. */
async function records(storage, key, { limit, ttl, blockDuration }, steps, pause = sleep) {
  const [found, asked, replied] = [[], [], []];
  for (const step of steps) {
    if (typeof step === 'number') {
      await pause(step);
      continue;
    }
    asked.push(Date.now());
    const { totalHits, isBlocked } = await storage.increment(key, ttl, limit, blockDuration, 'default');
    replied.push(Date.now());
    found.push(isBlocked ? 'blocked' : totalHits);
  }
  return { found, asked, replied };
}

const HIT = 'hit';
const HISTORIES = [
  [{ limit: 2, ttl: 3000, blockDuration: 3000 }, [HIT, HIT, HIT, HIT, 3600, HIT, HIT, HIT]],
  [{ limit: 2, ttl: 3000, blockDuration: 0 }, [HIT, 1500, HIT, HIT, HIT, 2100, HIT, HIT]], // each hit leaves by itself
  [{ limit: 2, ttl: 3_600_000, blockDuration: 1500 }, [HIT, HIT, HIT, 2100, HIT, HIT, HIT]], // a block ends all
  [{ limit: 2, ttl: 1500, blockDuration: 60_000 }, [HIT, HIT, HIT, 2100, HIT]],
];

test('the storage decides as the storage in memory does', async (t) => {
  const ours = await Promise.all(NAMES.map(async (name) => {
    const { port } = await startServer(t, name);
    const storage = new RateLimitThrottlerStorage(ioredis(connect(t, port)));
    // A busy machine may ask late: the other storage gets these hits at the same times.
    const histories = HISTORIES.map(async ([options, steps], i) => ({ options, ...(await records(storage, `${name}:${i}`, options, steps)) }));
    return Promise.all(histories);
  }));
  t.mock.timers.enable({ apis: ['Date'] });
  const theirs = async (options, times) => {
    const storage = new ThrottlerStorageService();
    const at = times.flatMap((time) => [time, HIT]);
    const { found } = await records(storage, 'k', options, at, async (time) => t.mock.timers.setTime(time));
    storage.onApplicationShutdown();
    return found;
  };
  let compared = 0;
  for (const { options, found, asked, replied } of ours.flat()) {
    const expected = await theirs(options, asked);
    // Only the server knows when it decided: skip a history in which that matters.
    if (String(expected) !== String(await theirs(options, replied))) continue;
    assert.deepEqual(found, expected, JSON.stringify({ options, asked }));
    compared += 1;
  }
  assert.ok(compared > 0);
});

onEachServer(test, 'the storage says how long a client is blocked, in seconds', async (t, name) => {
  const { port } = await startServer(t, name);
  const client = connect(t, port);
  const storage = new RateLimitThrottlerStorage(ioredis(client), { prefix: 'p:' });
  const increment = (blockDuration) => storage.increment('k', 60_000, 1, blockDuration, 'short');
  assert.deepEqual(await increment(0), { totalHits: 1, timeToExpire: 60, isBlocked: false, timeToBlockExpire: 0 });
  const between = ({ timeToBlockExpire }, least, most) => assert.ok(timeToBlockExpire >= least && timeToBlockExpire <= most);
  between(await increment(0), 50, 60);
  between(await increment(30_000), 25, 30);
  between(await increment(30_000), 25, 30);
  assert.deepEqual(await client.keys('*'), ['p:short:k']);
  await client.call('RL.BLOCK', 'p:short:k');
  between(await increment(0), 366 * 86_400, 366 * 86_400);
  await client.call('RL.EXEMPT', 'p:short:k');
  assert.deepEqual(await increment(0), { totalHits: 0, timeToExpire: 0, isBlocked: false, timeToBlockExpire: 0 });
});

test('a denial stands even if the server goes away before the reset', async () => {
  const check = async () => ({ verdict: 'limited', limit: 1, remaining: 0, waitMs: 60_000, resetMs: 60_000, source: 'server' });
  const lost = { check, reset: () => Promise.reject(new Error('Connection is closed.')) };
  assert.equal((await new RateLimitThrottlerStorage(lost).increment('k', 60_000, 1, 30_000, 'short')).isBlocked, true);
  const refused = { check, reset: () => Promise.reject(new Error('WRONGTYPE of the key p:short:k')) };
  await assert.rejects(new RateLimitThrottlerStorage(refused).increment('k', 60_000, 1, 30_000, 'short'), { message: 'Internal Server Error' });
});

test('an option chooses another algorithm', async (t) => {
  const { port } = await startServer(t);
  const client = connect(t, port);
  for (const algorithm of ['log', 'window', 'fixed', 'bucket']) {
    const storage = new RateLimitThrottlerStorage(ioredis(client), { prefix: `${algorithm}:`, algorithm });
    const { found } = await records(storage, 'k', { limit: 2, ttl: 3_600_000, blockDuration: 0 }, [HIT, HIT, HIT]);
    assert.deepEqual(found, [1, 2, 'blocked']);
    assert.match(String(await client.call('RL.INFO', `${algorithm}:default:k`)), new RegExp(algorithm));
  }
});

/** A Nest application with two throttlers, and a route on which one of them is stricter. */
async function startNest(t, storage) {
  class Routes {
    everyone() {
      return 'here';
    }
    strict() {
      return 'here';
    }
  }
  const decorate = (method, ...decorators) => {
    const property = Object.getOwnPropertyDescriptor(Routes.prototype, method);
    for (const decorator of decorators) decorator(Routes.prototype, method, property);
  };
  decorate('everyone', Get('/'));
  decorate('strict', Get('/strict'), Throttle({ default: { limit: 1, ttl: 60_000 } }));
  Controller()(Routes);

  class App {}
  const throttlers = [{ limit: 3, ttl: 60_000 }, { name: 'day', limit: 100, ttl: 86_400_000 }];
  Module({
    imports: [ThrottlerModule.forRoot({ throttlers, storage })],
    controllers: [Routes],
    providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  })(App);

  const app = await NestFactory.create(App, { logger: false });
  t.after(() => app.close());
  await app.listen(0, '127.0.0.1');
  const url = await app.getUrl();
  return (path) => fetch(url + path, { headers: { connection: 'close' } });
}

onEachServer(test, 'a Nest application limits with the storage', async (t, name) => {
  const { port } = await startServer(t, name);
  const get = await startNest(t, new RateLimitThrottlerStorage(ioredis(connect(t, port))));
  for (const remaining of ['2', '1', '0']) {
    const response = await get('/');
    const header = (name) => response.headers.get(`x-ratelimit-${name}`);
    assert.deepEqual([response.status, header('limit'), header('remaining'), header('limit-day')], [200, '3', remaining, '100']);
    assert.match(header('reset'), /^[1-6]\d$/);
  }
  const denied = await get('/');
  assert.equal(denied.status, 429);
  assert.match(denied.headers.get('retry-after'), /^[1-6]\d$/);
  assert.deepEqual([(await get('/strict')).status, (await get('/strict')).status], [200, 429]);
});

test('an error is logged, and shows nothing to a client', async (t) => {
  t.mock.method(console, 'error', () => {});
  const { port } = await startServer(t);
  const storage = new RateLimitThrottlerStorage(ioredis(connect(t, port)), { prefix: 'secret', algorithm: 'bucket' });
  t.mock.method(storage, 'increment', (...given) => RateLimitThrottlerStorage.prototype.increment.call(storage, given[0], given[1], 2e9, ...given.slice(3)));
  const answer = await (await startNest(t, storage))('/');
  assert.deepEqual([answer.status, await answer.json()], [500, { statusCode: 500, message: 'Internal server error' }]);
  assert.match(String(console.error.mock.calls[0].arguments[1]), /ERR rule/);
});

test('the limiter says what happens while the server is down', async (t) => {
  const { port, stop } = await startServer(t);
  const client = connect(t, port);
  const apps = {};
  for (const outage of ['raise', 'allow', 'local']) {
    apps[outage] = await startNest(t, new RateLimitThrottlerStorage(ioredis(client, { outage })));
  }
  await stop();
  const statuses = async (get) => {
    const found = [];
    for (let i = 0; i < 4; i++) found.push((await get('/')).status);
    return found;
  };
  assert.deepEqual(await statuses(apps.raise), [500, 500, 500, 500]);
  assert.deepEqual(await statuses(apps.allow), [200, 200, 200, 200]);
  assert.deepEqual(await statuses(apps.local), [200, 200, 200, 429]);
});
