// The store under express-rate-limit itself, and the behaviour that the tests of rate-limit-redis expect of a store.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { RateLimitStore } from 'redis-ratelimit/express-rate-limit';

import { ioredis } from './support/limiters.js';
import { connect, onEachServer, serve, startServer, until } from './support/servers.js';

function storeOf(client, windowMs, options) {
  const store = new RateLimitStore(ioredis(client), options);
  store.init({ windowMs });
  return store;
}

onEachServer(test, 'the store counts hits in the window that the first hit opens', async (t, name) => {
  const { port } = await startServer(t, name);
  const client = connect(t, port);
  const store = storeOf(client, 60_000);
  assert.equal(await store.get('k'), undefined);

  const before = Date.now();
  const first = await store.increment('k');
  assert.equal(first.totalHits, 1);
  assert.ok(first.resetTime >= before + 60_000 && first.resetTime <= Date.now() + 60_000);
  await sleep(50);
  const asked = Date.now();
  const second = await store.increment('k');
  assert.equal(second.totalHits, 2);
  assert.ok(second.resetTime - first.resetTime <= Date.now() - asked + 1, 'a hit moved the end of the window');
  assert.equal((await store.get('k')).totalHits, 2);
  assert.equal((await store.get('k')).totalHits, 2, 'a look counted');

  await store.decrement('k');
  assert.equal((await store.increment('k')).totalHits, 2);
  await store.resetKey('k');
  assert.equal((await store.increment('k')).totalHits, 1);
  for (let i = 0; i < 3; i++) await store.decrement('k');
  assert.equal((await store.increment('k')).totalHits, 1, 'less than nothing was counted');
  assert.deepEqual(await client.keys('*'), ['rl:k']);
});

onEachServer(test, 'a new window starts at 1, and the old one leaves nothing', async (t, name) => {
  const { port } = await startServer(t, name);
  const client = connect(t, port);
  await storeOf(client, 60_000, { prefix: 'long:' }).increment('k');
  assert.ok((await client.pttl('long:k')) > 0, 'the key has no end');
  const store = storeOf(client, 100, { prefix: 'short:' });
  const { resetTime } = await store.increment('k');
  await sleep(resetTime - Date.now() + 20); // timers of Node may be early
  assert.equal((await store.increment('k')).totalHits, 1);
});

onEachServer(test, 'a blocked client is over any limit, and an exempt one over none', async (t, name) => {
  const { port } = await startServer(t, name);
  const client = connect(t, port);
  const store = storeOf(client, 60_000);
  await client.call('RL.BLOCK', 'rl:bad');
  const blocked = await store.increment('bad');
  assert.ok(blocked.totalHits > 1e8);
  assert.equal(blocked.resetTime, undefined);
  await client.call('RL.EXEMPT', 'rl:good');
  for (let i = 0; i < 3; i++) assert.equal((await store.increment('good')).totalHits, 1);
});

onEachServer(test, 'express-rate-limit limits with the store', async (t, name) => {
  const { port } = await startServer(t, name);
  const store = new RateLimitStore(ioredis(connect(t, port)));
  const limiter = rateLimit({ windowMs: 60_000, limit: 3, standardHeaders: 'draft-8', store, logger: silent(t) });
  const app = express().use(limiter).get('/', (_req, res) => res.send('here'));
  const get = await serve(t, app);
  for (const remaining of [2, 1, 0]) {
    const response = await get('/');
    assert.equal(response.status, 200);
    assert.match(response.headers.get('ratelimit'), new RegExp(`r=${remaining}; t=[1-6]\\d`));
  }
  const denied = await get('/');
  assert.equal(denied.status, 429);
  assert.match(denied.headers.get('retry-after'), /^[1-6]\d$/);
  assert.equal((await limiter.getKey('127.0.0.1')).totalHits, 4, 'a denied request counts too');
  await limiter.resetKey('127.0.0.1');
  assert.equal((await get('/')).status, 200);
});

test('requests that are skipped after the answer do not count', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port));
  const app = express();
  const counted = {};
  for (const option of ['skipFailedRequests', 'skipSuccessfulRequests']) {
    const store = new RateLimitStore(limiter, { prefix: option });
    app.use(`/${option}`, rateLimit({ windowMs: 60_000, limit: 2, store, [option]: true, logger: silent(t) }));
    counted[option] = async () => (await store.get('127.0.0.1'))?.totalHits ?? 0;
  }
  app.get('/:option/:status', (req, res) => res.sendStatus(Number(req.params.status)));
  const get = await serve(t, app);
  const steps = [
    ['skipFailedRequests', 404, 404, 0],
    ['skipFailedRequests', 200, 200, 1],
    ['skipFailedRequests', 200, 200, 2],
    ['skipFailedRequests', 200, 429, 2], // a denial is a failed request
    ['skipSuccessfulRequests', 200, 200, 0],
    ['skipSuccessfulRequests', 401, 401, 1],
    ['skipSuccessfulRequests', 401, 401, 2],
    ['skipSuccessfulRequests', 401, 429, 3], // a denial is not a successful one
  ];
  for (const [option, wanted, status, hits] of steps) {
    assert.equal((await get(`/${option}/${wanted}`)).status, status);
    await until(async () => (await counted[option]()) === hits); // the library gives a hit back after the answer
  }
});

test('limiters with different prefixes count separately', async (t) => {
  const { port } = await startServer(t);
  const client = connect(t, port);
  const limiter = (prefix) =>
    rateLimit({ windowMs: 60_000, limit: 2, store: new RateLimitStore(ioredis(client), { prefix }), logger: silent(t) });
  const app = express().use(limiter('all:')).use('/login', limiter('login:')).get('/{*path}', (_req, res) => res.send('here'));
  const get = await serve(t, app);
  assert.equal((await get('/login')).status, 200);
  assert.deepEqual((await client.keys('*')).sort(), ['all:127.0.0.1', 'login:127.0.0.1']);
});

test('passOnStoreError says whether requests pass while the server is down', async (t) => {
  const { port, stop } = await startServer(t);
  const client = connect(t, port);
  const logged = [];
  const logger = { error: (...words) => logged.push(words), warn: () => {} };
  const limiter = (prefix, passOnStoreError) =>
    rateLimit({ limit: 2, store: new RateLimitStore(ioredis(client), { prefix }), passOnStoreError, logger });
  const app = express()
    .get('/open', limiter('open:', true), (_req, res) => res.send('here'))
    .get('/closed', limiter('closed:', false), (_req, res) => res.send('here'))
    .use((_error, _req, res, _next) => res.sendStatus(503));
  const get = await serve(t, app);
  assert.deepEqual([(await get('/open')).status, (await get('/closed')).status], [200, 200]);
  await stop();
  assert.deepEqual([(await get('/open')).status, (await get('/closed')).status], [200, 503]);
  assert.match(logged.map(String).join(), /allowing request without rate-limiting/);
});

/** A logger for a test in which express-rate-limit must find nothing wrong with the store. */
function silent(t) {
  const found = [];
  t.after(() => assert.deepEqual(found, []));
  const log = (...words) => found.push(words.join(' '));
  return { error: log, warn: log, info: log };
}
