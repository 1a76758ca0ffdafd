// Servers that answer and do not limit: without the module, or refusing the client.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import rateLimitPlugin from '@fastify/rate-limit';
import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import Fastify from 'fastify';
import { rateLimit } from 'redis-ratelimit/express';
import { RateLimitStore } from 'redis-ratelimit/express-rate-limit';
import { rateLimit as fastifyHook } from 'redis-ratelimit/fastify';
import { rateLimitStore } from 'redis-ratelimit/fastify-rate-limit';
import { ioredis } from 'redis-ratelimit/ioredis';

import { Notices } from '../dist/notices.js';
import { connect, serve, startServer, until } from './support/servers.js';

test('without listeners the console shows an outage, and no line has a key or a rule', async (t) => {
  const lines = { error: [], warn: [] };
  for (const level of ['error', 'warn']) t.mock.method(console, level, (...words) => lines[level].push(words.join(' ')));
  const { port, stop } = await startServer(t, undefined, [], 'PONG', { bare: true });
  const limiter = ioredis(connect(t, port), { outage: 'allow' });
  for (let i = 0; i < 100; i++) assert.equal((await limiter.check('secret-key', '7/h,name=secret-rule')).source, 'outage');
  assert.equal(lines.error.length, 1);
  assert.match(lines.error[0], /^redis-ratelimit: the server does not limit \(ERR\): load the module: loadmodule libredis_ratelimit\.so, see INSTALL\.md; or choose engine='script'; /);
  await stop();
  while (lines.warn.length === 0) await limiter.check('secret-key', '7/h,name=secret-rule');
  assert.match(lines.warn[0], /^redis-ratelimit: localhost:\d+ is away: .*ECONNREFUSED/);

  const other = await startServer(t);
  const local = ioredis(connect(t, other.port), { outage: 'local' });
  other.pause();
  for (let i = 0; i < 4; i++) await local.check('secret-key', '7/h,name=secret-rule');
  other.resume();
  await until(async () => (await local.check('secret-key', '7/h,name=secret-rule')).source === 'server');
  assert.equal(lines.warn.length, 3);
  assert.match(lines.warn[1], /^redis-ratelimit: localhost:\d+ is away: no (reply|connection) within 250 ms$/);
  assert.match(lines.warn[2], /^redis-ratelimit: localhost:\d+ is back; [1-9]\d* requests were answered without it$/);
  assert.doesNotMatch([...lines.error, ...lines.warn].join(), /secret/);
});

test('a listener that rejects ends no process', async (t) => {
  const logged = t.mock.method(console, 'error', () => {});
  const fail = async () => {
    throw new Error('a listener at fault');
  };
  const notices = new Notices({ onOutage: fail, onMisconfigured: fail });
  notices.outage(true, 'a:1', new Error('down'));
  notices.misconfigured(0, new Error('NOAUTH Authentication required.'));
  await until(() => logged.mock.callCount() === 2);
  assert.match(logged.mock.calls[0].arguments.join(' '), /a listener failed: Error: a listener at fault/);
});

test('no client of a site sees a key, a rule, or what the server says', async (t) => {
  t.mock.method(console, 'error', () => {});
  const { port } = await startServer(t);
  const client = connect(t, port);
  for (const key of ['secret-key', 'secret:127.0.0.1', 'secret:GET/store-127.0.0.1']) await client.set(key, 'no limiter');
  const limiter = ioredis(client, { outage: 'allow', timeoutMs: 10_000 });
  const wrong = { type: () => ({ key: 'secret-key', rules: '5/h' }), rule: () => ({ key: 'k', rules: '5/secret-unit' }) };
  const app = express();
  const fastify = Fastify();
  t.after(() => fastify.close());
  for (const [path, limits] of Object.entries(wrong)) {
    app.get(`/${path}`, rateLimit(limiter, limits), (_req, res) => res.send('here'));
    fastify.get(`/${path}`, { onRequest: fastifyHook(limiter, limits) }, async () => 'here');
  }
  app.get('/store', expressRateLimit({ store: new RateLimitStore(limiter, { prefix: 'secret:' }) }), (_req, res) => res.send('here'));
  await fastify.register(rateLimitPlugin, { global: false, store: rateLimitStore(limiter, { prefix: 'secret:' }) });
  fastify.get('/store', { config: { rateLimit: { max: 5 } } }, async () => 'here');
  const get = await serve(t, app);
  for (const path of [...Object.keys(wrong), 'store']) {
    const ofExpress = await get(`/${path}`);
    const ofFastify = await fastify.inject(`/${path}`);
    assert.deepEqual([ofExpress.status, ofFastify.statusCode], [500, 500]);
    assert.deepEqual(ofFastify.json(), { statusCode: 500, error: 'Internal Server Error', message: 'Internal Server Error' });
    const body = await ofExpress.text();
    assert.match(body, /Internal Server Error/);
    assert.doesNotMatch(body, /secret|WRONGTYPE|ERR|node_modules|dist/);
  }
  const calls = console.error.mock.calls.map(({ arguments: words }) => String(words[1]));
  assert.ok(calls.some((line) => line.includes('WRONGTYPE')), 'the log tells what happened');
});
