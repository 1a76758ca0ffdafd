// What the limiter does with a client's options, and with a client that is closed.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import express from 'express';
import { Redis as Iovalkey } from 'iovalkey';
import { createClient } from 'redis';
import { RateLimiter } from 'redis-ratelimit';
import { rateLimit } from 'redis-ratelimit/express';
import { ioredis } from 'redis-ratelimit/ioredis';
import { iovalkey } from 'redis-ratelimit/iovalkey';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { run } from './support/consumer.js';
import { connect, freePort, serve, startServer, until } from './support/servers.js';

test('options of a client that change replies or send again change nothing', async (t) => {
  const { port } = await startServer(t);
  const odd = { stringNumbers: true, enableAutoPipelining: true, reconnectOnError: () => 2, commandTimeout: 1, keyPrefix: 'app:', lazyConnect: true };
  const mapped = createClient({ url: `redis://127.0.0.1:${port}`, commandOptions: { typeMapping: { 36: Buffer, 58: String } } });
  const patient = { timeoutMs: 10_000 };
  const limiters = [ioredis(connect(t, port, odd), patient), iovalkey(connect(t, port, odd, Iovalkey), patient), nodeRedis(mapped, patient)];
  for (const [i, limiter] of limiters.entries()) {
    const get = await serve(t, express().get('/', rateLimit(limiter, '2/h,name=hour', { key: () => `k${i}` }), (_req, res) => res.send('here')));
    const answers = [await get('/'), await get('/'), await get('/')];
    assert.deepEqual(answers.map(({ status }) => status), [200, 200, 429]);
    assert.equal(answers[0].headers.get('ratelimit-policy'), '"hour";q=2;w=3600');
    const { shadow, denies, remaining } = (await limiter.peekAll(`k${i}`, '2/h,name=hour')).rules[0];
    assert.deepEqual({ shadow, denies, remaining }, { shadow: false, denies: true, remaining: 0 });
    await limiter.close();
  }
  assert.equal(await connect(t, port).exists('app:k0', 'app:k1', 'k2'), 3);
});

const OPTIONS = "{ outage: 'allow', timeoutMs: 10_000, onOutage: () => {} }";
const CLIENTS = {
  ioredis: (url) => `import { Redis } from 'ioredis';
    import { ioredis } from 'redis-ratelimit/ioredis';
    const redis = new Redis('${url}');
    const limiter = ioredis(redis, ${OPTIONS});`,
  'node-redis': (url) => `import { createClient } from 'redis';
    import { nodeRedis } from 'redis-ratelimit/node-redis';
    const redis = createClient({ url: '${url}' });
    redis.connect().catch(() => {});
    const limiter = nodeRedis(redis, ${OPTIONS});`,
};
const program = (client, end) => `${client}
  redis.on('error', () => {});
  const { source } = await limiter.check('k', '9/h');
  await new Promise((pass) => setTimeout(pass, 100));
  ${end};
  console.log(source);`;

for (const [library, client] of Object.entries(CLIENTS)) {
  test(`a process whose client is closed can exit, also while the server is away (${library})`, async (t) => {
    const close = library === 'ioredis' ? 'redis.disconnect()' : 'redis.destroy()';
    const { port } = await startServer(t);
    const dead = await freePort();
    for (const [url, source] of [[`redis://127.0.0.1:${port}`, 'server'], [`redis://127.0.0.1:${dead}`, 'outage']]) {
      for (const end of [close, `await limiter.close(); ${close}`]) {
        const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program(client(url), end)], { cwd: import.meta.dirname, timeout: 30_000 });
        assert.equal(stdout, `${source}\n`, `${url} ${end}`);
      }
    }
  });
}

test('a limiter whose client is closed asks no more', async (t) => {
  const { port } = await startServer(t);
  const admin = connect(t, port);
  const client = connect(t, port);
  const limiter = ioredis(client, { outage: 'allow', timeoutMs: 10_000, onOutage: () => {} });
  assert.equal((await limiter.check('k', '9/h')).source, 'server');
  client.disconnect();
  await until(() => client.status === 'end');
  assert.equal((await limiter.check('k', '9/h')).source, 'outage');
  await until(async () => /connected_clients:1\r/.test(await admin.info('clients')));
});

test('a limiter in the process asks no server', async () => {
  const decisions = [];
  const limiter = RateLimiter.inProcess({ login: ['2/h,name=hour'] }, { onDecision: (event) => decisions.push(event) });
  const verdicts = [];
  for (let i = 0; i < 3; i++) verdicts.push((await limiter.check('k', '@login')).verdict);
  assert.deepEqual(verdicts, ['allowed', 'allowed', 'limited']);
  const report = await limiter.checkAll([{ key: 'k', rules: '@login' }]);
  assert.deepEqual([report.source, report.rules[0].remaining], ['local', 0]);
  assert.deepEqual(decisions.map(({ rule }) => rule), ['@login', '@login', '@login', 'hour']);
  assert.equal(await limiter.reset('k'), true);
  assert.equal((await limiter.check('k', '@login')).verdict, 'allowed');
  await (await limiter.hold('jobs', 'slots:1', { ttlMs: 1000 })).settle();
  assert.deepEqual([limiter.away, limiter.outages], [false, 0]);
});
