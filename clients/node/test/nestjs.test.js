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

/** What a storage says to some hits, the pauses between them in milliseconds. */
async function records(storage, key, { limit, ttl, blockDuration }, steps) {
  const found = [];
  for (const step of steps) {
    if (typeof step === 'number') await sleep(step);
    else found.push(await storage.increment(key, ttl, limit, blockDuration, 'default'));
  }
  return found;
}

const HIT = 'hit';
const HISTORIES = [
  [{ limit: 2, ttl: 3000, blockDuration: 3000 }, [HIT, HIT, HIT, HIT, 3600, HIT, HIT, HIT]],
  [{ limit: 2, ttl: 3000, blockDuration: 0 }, [HIT, 1500, HIT, HIT, HIT, 2100, HIT, HIT]], // each hit leaves by itself
  [{ limit: 2, ttl: 3_600_000, blockDuration: 1500 }, [HIT, HIT, HIT, 2100, HIT, HIT, HIT]], // a block ends all
  [{ limit: 2, ttl: 1500, blockDuration: 60_000 }, [HIT, HIT, HIT, 2100, HIT]],
];

test('the storage decides as that in memory does', async (t) => {
  const theirs = new ThrottlerStorageService();
  t.after(() => theirs.onApplicationShutdown());
  const compare = async (name) => {
    const { port } = await startServer(t, name);
    const ours = new RateLimitThrottlerStorage(ioredis(connect(t, port)));
    const histories = HISTORIES.map(async ([options, steps], i) => {
      const both = await Promise.all([ours, theirs].map((storage) => records(storage, `${name}:${i}`, options, steps)));
      const [got, expected] = both.map((list) => list.map(({ totalHits, isBlocked }) => (isBlocked ? 'blocked' : totalHits)));
      assert.deepEqual(got, expected, `${name}: ${JSON.stringify(options)}`);
    });
    await Promise.all(histories);
  };
  await Promise.all(NAMES.map(compare));
});

onEachServer(test, 'the storage says for how long, in seconds', async (t, name) => {
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

test('other algorithms are a word', async (t) => {
  const { port } = await startServer(t);
  const client = connect(t, port);
  for (const algorithm of ['log', 'window', 'fixed', 'bucket']) {
    const storage = new RateLimitThrottlerStorage(ioredis(client), { prefix: `${algorithm}:`, algorithm });
    const found = await records(storage, 'k', { limit: 2, ttl: 3_600_000, blockDuration: 0 }, [HIT, HIT, HIT]);
    assert.deepEqual(found.map(({ totalHits, isBlocked }) => [totalHits, isBlocked]), [[1, false], [2, false], [3, true]]);
    assert.match(String(await client.call('RL.INFO', `${algorithm}:default:k`)), new RegExp(algorithm));
  }
});

/** A Nest application with two throttlers, and a route of which one is stricter. */
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
    assert.match(header('reset'), /^(60|59)$/);
  }
  const denied = await get('/');
  assert.equal(denied.status, 429);
  assert.match(denied.headers.get('retry-after'), /^(60|59)$/);
  assert.deepEqual([(await get('/strict')).status, (await get('/strict')).status], [200, 429]);
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
