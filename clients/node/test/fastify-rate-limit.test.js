// The store under @fastify/rate-limit, and under that package's own tests.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import rateLimit from '@fastify/rate-limit';
import Fastify from 'fastify';
import { rateLimitStore } from 'redis-ratelimit/fastify-rate-limit';

import { ioredis } from './support/limiters.js';
import { connect, LONG, onEachServer, startServer } from './support/servers.js';

const OWN_TESTS = resolve(import.meta.dirname, '../node_modules/@fastify/rate-limit/test');
const SUPPORT = resolve(import.meta.dirname, 'support/fastify-own');

onEachServer(test, 'the plugin limits with the store', async (t, name) => {
  const { port } = await startServer(t, name);
  const client = connect(t, port);
  const app = Fastify();
  t.after(() => app.close());
  await app.register(rateLimit, { max: 3, timeWindow: '1 minute', ban: 1, store: rateLimitStore(ioredis(client)) });
  app.get('/', async () => 'here');
  app.get('/strict', { config: { rateLimit: { max: 1 } } }, async () => 'here');

  for (const remaining of [2, 1, 0]) {
    const { statusCode, headers } = await app.inject('/');
    assert.deepEqual([statusCode, headers['x-ratelimit-remaining']], [200, String(remaining)]);
  }
  const denied = await app.inject('/');
  assert.equal(denied.statusCode, 429);
  assert.match(denied.headers['retry-after'], /^[1-6]\d$/);
  assert.equal((await app.inject('/')).statusCode, 403, 'the option ban counts denied requests');
  assert.deepEqual([(await app.inject('/strict')).statusCode, (await app.inject('/strict')).statusCode], [200, 429]);
  const keys = ['fastify-rate-limit-127.0.0.1', 'fastify-rate-limit-GET/strict-127.0.0.1'];
  assert.deepEqual((await client.keys('*')).sort(), keys);
  await client.call('RL.EXEMPT', keys[1]);
  assert.equal((await app.inject('/strict')).statusCode, 200);
});

test('skipOnError says whether requests pass while the server is down', async (t) => {
  const { port, stop } = await startServer(t);
  const store = rateLimitStore(ioredis(connect(t, port)));
  const apps = [true, false].map((skipOnError) => {
    const app = Fastify();
    t.after(() => app.close());
    app.register(rateLimit, { store, skipOnError }).after(() => app.get('/', async () => 'here'));
    return app;
  });
  const statuses = () => Promise.all(apps.map(async (app) => (await app.inject('/')).statusCode));
  assert.deepEqual(await statuses(), [200, 200]);
  await stop();
  assert.deepEqual(await statuses(), [200, 500]);
});

test('options that the store does not offer are errors', async (t) => {
  const { port } = await startServer(t);
  const store = rateLimitStore(ioredis(connect(t, port)));
  for (const option of ['continueExceeding', 'exponentialBackoff']) {
    await assert.rejects(Fastify().register(rateLimit, { store, [option]: true }).ready(), new RegExp(option));
  }
});

// The tests of options that the store does not offer.
const NOT_OFFERED = /test\('([^']*(?:exponential backoff|continue ?exceeding)[^']*)'/gi;

for (const [file, passing, skipped] of [['redis-rate-limit.test.js', 10, 6], ['group-rate-limit.test.js', 5, 0]]) {
  test(`the tests of @fastify/rate-limit pass: ${file}`, LONG, async (t) => {
    const { port } = await startServer(t);
    const folder = await mkdtemp(join(tmpdir(), 'fastify-own-'));
    t.after(() => rm(folder, { recursive: true }));
    const requireFrom = (path) => `require(${JSON.stringify(path)})`;
    const own = (await readFile(join(OWN_TESTS, file), 'utf8'))
      .replace("require('../index')", requireFrom(join(SUPPORT, 'index.cjs')))
      .replace("require('ioredis')", requireFrom(join(SUPPORT, 'ioredis.cjs')))
      .replace("require('fastify')", requireFrom(resolve(OWN_TESTS, '../../../fastify')))
      .replaceAll('"message":"Connection is closed."', '"message":"Internal Server Error"') // this store hides the text of errors
      .replaceAll(NOT_OFFERED, "test.skip('$1'");
    await writeFile(join(folder, file), own);
    const args = ['--no-warnings', '--test', '--test-force-exit', '--test-reporter=tap', join(folder, file)];
    const env = { ...process.env, PORT: String(port), NODE_TEST_CONTEXT: undefined };
    const { stdout } = await promisify(execFile)(process.execPath, args, { env }).catch((failed) => failed);
    assert.match(stdout, /^# fail 0$/m, stdout);
    assert.match(stdout, new RegExp(`^# pass ${passing}$`, 'm'), stdout);
    assert.match(stdout, new RegExp(`^# skipped ${skipped}$`, 'm'), stdout);
  });
}
