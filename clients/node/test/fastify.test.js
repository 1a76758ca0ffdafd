import assert from 'node:assert/strict';
import { test } from 'node:test';

import Fastify from 'fastify';
import { rateLimit } from 'redis-ratelimit/fastify';

import { ioredis } from './support/limiters.js';
import { connect, onEachServer, startServer } from './support/servers.js';

const limits = (request) => [
  { key: `ip:${request.ip}`, rules: '9/h,name=address' },
  { key: `user:${request.headers['x-user']}`, rules: '2/h,name=user' },
];

/** An application whose requests the hook limits. */
function application(t, hook) {
  const app = Fastify();
  t.after(() => app.close());
  app.addHook('onRequest', hook);
  app.get('/', async () => 'here');
  return (user) => app.inject({ url: '/', headers: { 'x-user': user } });
}

onEachServer(test, 'requests pass as long as each of their limits lets them', async (t, name) => {
  const { port } = await startServer(t, name);
  const client = connect(t, port);
  const get = application(t, rateLimit(ioredis(client), limits));
  const first = await get('ann');
  assert.deepEqual([first.statusCode, first.body], [200, 'here']);
  assert.equal(first.headers['ratelimit-policy'], '"address";q=9;w=3600, "user";q=2;w=3600');
  assert.equal(first.headers.ratelimit, '"address";r=8;t=3600, "user";r=1;t=3600');
  await get('ann');
  const denied = await get('ann');
  assert.equal(denied.statusCode, 429);
  assert.match(denied.headers['content-type'], /^application\/problem\+json/);
  assert.match(denied.headers['retry-after'], /^3(600|5\d\d)$/);
  assert.deepEqual(denied.json()['violated-policies'], ['user']);
  await client.call('RL.BLOCK', 'ip:127.0.0.1');
  assert.equal((await get('bob')).statusCode, 403);
});

test('a request waits for its turn under a leaky rule', async (t) => {
  const { port } = await startServer(t);
  const get = application(t, rateLimit(ioredis(connect(t, port)), () => ({ key: 'mail', rules: 'leaky:1/100ms,queue=9' })));
  const started = Date.now();
  await Promise.all([get('ann'), get('ann'), get('ann')]);
  assert.ok(Date.now() - started >= 190, 'the last of three came at once');
});

test('options choose the cost and the refusal', async (t) => {
  const { port } = await startServer(t);
  const refuse = (report, _request, reply) => reply.code(429).send(`come back in ${report.waitMs} ms`);
  const hook = rateLimit(ioredis(connect(t, port)), () => ({ key: 'k', rules: '5/h' }), { cost: () => 3, refuse });
  const get = application(t, hook);
  assert.equal((await get('ann')).body, 'here');
  assert.match((await get('ann')).body, /^come back in \d+ ms$/);
});
