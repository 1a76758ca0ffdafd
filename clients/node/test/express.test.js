import assert from 'node:assert/strict';
import { test } from 'node:test';

import express from 'express';
import { rateLimit } from 'redis-ratelimit/express';

import { ioredis } from './support/limiters.js';
import { connect, onEachServer, serve, startServer, until } from './support/servers.js';

const here = (_req, res) => res.send('here');

/** Limits a request by its address, and by its user if it has one. */
function limits(req) {
  const address = { key: `ip:${req.ip}`, rules: '4/h,name=address' };
  const user = req.get('x-user');
  return user ? [address, { key: `user:${user}`, rules: '2/h,name=user' }] : address;
}

onEachServer(test, 'requests pass as long as each of their limits lets them', async (t, name) => {
  const { port } = await startServer(t, name);
  const limiter = ioredis(connect(t, port));
  const get = await serve(t, express().get('/', rateLimit(limiter, limits), here));
  const as = (user) => get('/', { headers: { connection: 'close', ...(user && { 'x-user': user }) } });

  const first = await as('ann');
  assert.equal(first.status, 200);
  assert.equal(first.headers.get('ratelimit-policy'), '"address";q=4;w=3600, "user";q=2;w=3600');
  assert.equal(first.headers.get('ratelimit'), '"address";r=3;t=3600, "user";r=1;t=3600');
  assert.equal(first.headers.get('retry-after'), null);
  assert.equal((await as('ann')).status, 200);

  const denied = await as('ann');
  assert.equal(denied.status, 429);
  assert.match(denied.headers.get('retry-after'), /^3(600|5\d\d)$/);
  assert.match(denied.headers.get('content-type'), /^application\/problem\+json/);
  assert.deepEqual((await denied.json())['violated-policies'], ['user']);

  assert.deepEqual([(await as('bob')).status, (await as()).status], [200, 200], 'the denial took from the address');
  assert.deepEqual([(await as('cid')).status, (await as()).status], [429, 429]);
  assert.equal((await limiter.peek('user:cid', '2/h,name=user')).remaining, 2, 'the denial took from the user');
});

test('a blocked client is forbidden', async (t) => {
  const { port } = await startServer(t);
  const client = connect(t, port);
  const get = await serve(t, express().get('/', rateLimit(ioredis(client), limits), here));
  await client.call('RL.BLOCK', 'ip:127.0.0.1');
  const blocked = await get('/');
  assert.deepEqual([blocked.status, blocked.headers.get('retry-after')], [403, null]);
});

test('a request waits for its turn under a leaky rule', async (t) => {
  const { port } = await startServer(t);
  const turns = rateLimit(ioredis(connect(t, port)), () => ({ key: 'mail', rules: 'leaky:1/100ms,queue=9' }));
  const get = await serve(t, express().get('/', turns, here));
  const started = Date.now();
  const answers = await Promise.all(Array.from({ length: 4 }, () => get('/')));
  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 200, 200]);
  assert.ok(Date.now() - started >= 290, 'the last of four came at once');
});

test('handlers find the report, and options choose the cost and the refusal', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port));
  const options = {
    cost: async (req) => Number(req.query.cost),
    refuse: (report, _req, res) => res.status(429).send(`come back in ${report.waitMs} ms`),
  };
  const app = express().get('/', rateLimit(limiter, async () => ({ key: 'k', rules: ['5/h'] }), options), (_req, res) =>
    res.send(`${res.locals.rateLimit.rules[0].remaining} left`),
  );
  const get = await serve(t, app);
  assert.equal(await (await get('/?cost=3')).text(), '2 left');
  assert.match(await (await get('/?cost=3')).text(), /^come back in \d+ ms$/);
});

test('two middlewares in a row both tell their limits', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port));
  const app = express()
    .use(rateLimit(limiter, () => ({ key: 'a', rules: '9/h,name=a' })))
    .use(rateLimit(limiter, () => ({ key: 'b', rules: '5/h,name=b' })))
    .get('/', here);
  const get = await serve(t, app);
  assert.equal((await get('/')).headers.get('ratelimit'), '"a";r=8;t=3600, "b";r=4;t=3600');
});

test('an error of the application is not taken for one of the server', async (t) => {
  const { port } = await startServer(t);
  const broken = () => assert.fail('a fault');
  const app = express()
    .get('/', rateLimit(ioredis(connect(t, port), { outage: 'allow' }), broken), here)
    .use((error, _req, res, _next) => res.status(500).send(error.message));
  const get = await serve(t, app);
  assert.equal(await (await get('/')).text(), 'a fault');
});

test('rules without a function count networks', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port));
  const app = express()
    .get('/rules', rateLimit(limiter, '2/h,name=hour', { skip: (req) => 'skip' in req.query, headers: 'legacy' }), here)
    .get('/silent', rateLimit(limiter, '0/h', { headers: 'none', key: () => 'all' }), here);
  const get = await serve(t, app);
  const first = await get('/rules');
  const fields = ['limit', 'remaining', 'reset'].map((name) => first.headers.get(`x-ratelimit-${name}`));
  assert.deepEqual([first.headers.get('ratelimit'), ...fields], [null, '2', '1', '3600']);
  assert.equal((await limiter.peek('ip:127.0.0.1', '2/h,name=hour')).remaining, 1);
  const statuses = [];
  for (const path of ['/rules', '/rules', '/rules?skip', '/silent']) statuses.push((await get(path)).status);
  assert.deepEqual(statuses, [200, 429, 200, 429]);
});

test('a policy with slots is an error and takes no slot', async (t) => {
  const errors = t.mock.method(console, 'error', () => {});
  const { port } = await startServer(t);
  const client = connect(t, port);
  await client.call('RL.POLICY', 'SET', 'shared', '9/m', 'slots:2');
  for (const separately of [false, true]) {
    const limiter = ioredis(client, { separately });
    const limits = [{ key: `${separately}:1`, rules: '@shared' }, { key: `${separately}:2`, rules: '9/h' }];
    const get = await serve(t, express().get('/', rateLimit(limiter, () => limits, { count: 'failed' }), here));
    assert.equal((await get('/')).status, 500);
    assert.match(String(errors.mock.calls[0].arguments[1]), /the rules have 'slots:2'.*slots are held/);
    const left = async (i, rules) => (await limiter.peek(limits[i].key, rules)).remaining;
    assert.deepEqual([await left(0, 'slots:2'), await left(0, '9/m'), await left(1, '9/h')], [2, 9, 9]);
  }
});

test('requests that do not count get their units back after the response', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port));
  const limits = (count) => [{ key: `${count}:a`, rules: ['9/h', 'bucket:9/h,cost=2'] }, { key: `${count}:b`, rules: '9/h' }];
  const app = express();
  for (const count of ['failed', 'successful']) {
    app.get(`/${count}/:status`, rateLimit(limiter, () => limits(count), { count }), (req, res) => res.sendStatus(Number(req.params.status)));
  }
  const get = await serve(t, app);
  const left = async (count) => {
    const reports = await Promise.all(limits(count).map(({ key, rules }) => limiter.peekAll(key, rules)));
    return reports.flatMap(({ rules }) => rules).map(({ remaining }) => remaining).join();
  };
  for (const [count, counted, ignored] of [['failed', 404, 200], ['successful', 200, 404]]) {
    await get(`/${count}/${ignored}`);
    await until(async () => (await left(count)) === '9,9,9');
    await get(`/${count}/${counted}`);
    assert.equal(await left(count), '8,7,8');
  }
});

test('a middleware lets exactly the limit of a burst pass', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port), { outage: 'allow', timeoutMs: 5000, queueTimeoutMs: 60_000 });
  const get = await serve(t, express().get('/', rateLimit(limiter, '50/h'), here));
  const statuses = await Promise.all(Array.from({ length: 600 }, async () => (await get('/')).status));
  assert.deepEqual([200, 429].map((wanted) => statuses.filter((status) => status === wanted).length), [50, 550]);
});
