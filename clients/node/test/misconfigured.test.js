// Servers that answer and do not limit: without the module, or refusing the client.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import rateLimitPlugin from '@fastify/rate-limit';
import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import Fastify from 'fastify';
import { Redis as Iovalkey } from 'iovalkey';
import { createClient } from 'redis';
import { isOutage } from 'redis-ratelimit';
import { rateLimit } from 'redis-ratelimit/express';
import { RateLimitStore } from 'redis-ratelimit/express-rate-limit';
import { rateLimit as fastifyHook } from 'redis-ratelimit/fastify';
import { rateLimitStore } from 'redis-ratelimit/fastify-rate-limit';
import { ioredis } from 'redis-ratelimit/ioredis';
import { iovalkey } from 'redis-ratelimit/iovalkey';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { Notices } from '../dist/notices.js';
import { adviceOn, kindOf } from '../dist/outage.js';
import { connect, serve, startServer, until } from './support/servers.js';

/** A client that may be refused, so nobody waits until it is connected. */
const CLIENTS = {
  ioredis: (t, port, user, options) => ioredis(connect(t, port, user), options),
  iovalkey: (t, port, user, options) => iovalkey(connect(t, port, user, Iovalkey), options),
  'node-redis': (t, port, user, options) => {
    const client = createClient({ url: `redis://127.0.0.1:${port}`, ...user });
    client.on('error', () => {});
    t.after(() => client.destroy());
    client.connect().catch(() => {});
    return nodeRedis(client, options);
  },
};

/** By the code of the server's reply: how to make it refuse the client, the client's user, and how to end the refusal. */
const REFUSALS = {
  ERR: { bare: true, advice: "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'" },
  NOAUTH: { options: ['--requirepass', 'secret'], admin: { password: 'secret' }, advice: 'give the client the password', end: (admin) => admin.config('SET', 'requirepass', '') },
  WRONGPASS: {
    options: ['--requirepass', 'secret'],
    admin: { password: 'secret' },
    user: { password: 'wrong' },
    advice: 'give the client the password',
    end: (admin) => admin.config('SET', 'requirepass', 'wrong'),
  },
  NOPERM: {
    begin: (admin) => admin.call('ACL', 'SETUSER', 'app', 'on', 'nopass', '~*', '+@all', '-rl.check'),
    user: { username: 'app', password: 'any' },
    advice: 'give the user the rights +@ratelimit ~keys, see SECURITY.md',
    end: (admin) => admin.call('ACL', 'SETUSER', 'app', '+rl.check'),
  },
};

for (const [code, { bare, options = [], admin: as = {}, user = {}, begin, advice, end }] of Object.entries(REFUSALS)) {
  for (const [through, limiterOf] of Object.entries(CLIENTS)) {
    test(`a server that replies ${code} is reported, and checks are answered as the option outage says (${through})`, async (t) => {
      const { port } = await startServer(t, undefined, options, bare || !options.includes('--requirepass') ? 'PONG' : 'NOAUTH', { bare });
      const admin = connect(t, port, as);
      await begin?.(admin);
      const [outages, reports] = [[], []];
      const listeners = { onOutage: (event) => outages.push(event), onMisconfigured: (event) => reports.push(event) };
      const limiter = limiterOf(t, port, user, { outage: 'deny', ...listeners });
      const sources = new Set();
      const began = performance.now();
      for (let i = 0; i < 250 || (reports.length === 0 && performance.now() - began < 20_000); i++) {
        sources.add((await limiter.check('secret-key', '7/h,name=secret-rule')).source);
        if (i >= 250) await sleep(20);
      }
      assert.deepEqual([...sources], ['outage']);
      assert.equal(reports.length, 1);
      assert.equal(reports[0].advice, advice);
      // node-redis sends commands before it knows that its password is wrong.
      const codes = code === 'WRONGPASS' && through === 'node-redis' ? [code, 'NOAUTH'] : [code];
      assert.ok(codes.includes(reports[0].error.message.split(' ')[0]), reports[0].error.message);
      assert.deepEqual(outages.map(({ away }) => away), [true], 'the outage lasts while the server refuses');
      const connections = Number(/total_connections_received:(\d+)/.exec(await admin.info('stats'))[1]);
      const seconds = (performance.now() - began) / 1000;
      assert.ok(connections < 20 + 25 * seconds, `${connections} connections in ${seconds} s`); // the client tries by itself, too
      if (!end) return;
      await end(admin);
      await until(async () => (await limiter.check('k', '10000/h')).source === 'server');
      assert.deepEqual(outages.map(({ away }) => away), [true, false]);
    });
  }
}

test('without listeners the console shows an outage, and no line has a key or a rule', async (t) => {
  const lines = { error: [], warn: [] };
  for (const level of ['error', 'warn']) t.mock.method(console, level, (...words) => lines[level].push(words.join(' ')));
  const { port, stop } = await startServer(t, undefined, [], 'PONG', { bare: true });
  const limiter = ioredis(connect(t, port), { outage: 'allow' });
  for (let i = 0; i < 100; i++) assert.equal((await limiter.check('secret-key', '7/h,name=secret-rule')).source, 'outage');
  assert.equal(lines.error.length, 1);
  assert.match(lines.error[0], /^redis-ratelimit: the server does not limit \(ERR\): load the module: loadmodule libredis_ratelimit\.so, see INSTALL\.md; or choose engine='script'; /);
  assert.equal(lines.warn.length, 1);
  assert.match(lines.warn[0], /^redis-ratelimit: stops asking the server: ERR$/);
  await stop();

  const other = await startServer(t);
  const local = ioredis(connect(t, other.port), { outage: 'local' });
  other.pause();
  for (let i = 0; i < 4; i++) await local.check('secret-key', '7/h,name=secret-rule');
  other.resume();
  await until(async () => (await local.check('secret-key', '7/h,name=secret-rule')).source === 'server');
  assert.equal(lines.warn.length, 3);
  assert.match(lines.warn[2], /^redis-ratelimit: asks the server again; [1-9]\d* requests were answered without it$/);
  assert.doesNotMatch([...lines.error, ...lines.warn].join(), /secret/);
});

test('a misconfiguration is reported at once, and then once a minute', () => {
  const events = [];
  const notices = new Notices({ onMisconfigured: (event) => events.push(event) });
  const refused = new Error('NOAUTH Authentication required.');
  for (const [now, answered] of [[0, 0], [1000, 5], [59_999, 7], [60_000, 9], [61_000, 12]]) {
    notices.answered = answered;
    notices.misconfigured(now, refused);
  }
  notices.misconfigured(62_000, new Error('NOPERM this user'));
  assert.deepEqual(events.map(({ answered, error }) => [answered, error.message.split(' ')[0]]), [[0, 'NOAUTH'], [9, 'NOAUTH'], [3, 'NOPERM']]);
});

test('a listener that rejects ends no process', async (t) => {
  const logged = t.mock.method(console, 'error', () => {});
  const fail = async () => {
    throw new Error('a listener at fault');
  };
  const notices = new Notices({ onOutage: fail, onMisconfigured: fail });
  notices.outage(true, new Error('down'));
  notices.misconfigured(0, new Error('NOAUTH Authentication required.'));
  await until(() => logged.mock.callCount() === 2);
  assert.match(logged.mock.calls[0].arguments.join(' '), /a listener failed: Error: a listener at fault/);
});

test('a refused command of the application stops no limit', async (t) => {
  const { port } = await startServer(t);
  await connect(t, port).call('ACL', 'SETUSER', 'app', 'on', 'nopass', '~*', '+@all', '-rl.block');
  const limiter = ioredis(connect(t, port, { username: 'app', password: 'any' }), { outage: 'allow', timeoutMs: 10_000 });
  for (let i = 0; i < 4; i++) await assert.rejects(limiter.call('RL.BLOCK', 'k'), /NOPERM/);
  assert.deepEqual([limiter.away, limiter.outages, (await limiter.check('k', '9/h')).source], [false, 0, 'server']);
});

test('a missing right to another command stops no limit', async (t) => {
  const { port } = await startServer(t);
  const without = ['reset', 'refund', 'settle', 'renew', 'pause'].map((name) => `-rl.${name}`);
  await connect(t, port).call('ACL', 'SETUSER', 'app', 'on', 'nopass', '~*', '+@all', ...without);
  const reports = [];
  const options = { outage: 'local', timeoutMs: 10_000, onMisconfigured: (event) => reports.push(event) };
  const limiter = ioredis(connect(t, port, { username: 'app', password: 'any' }), options);
  for (let i = 0; i < 3; i++) {
    for (const ask of [
      () => limiter.reset('k'),
      () => limiter.refund('k', 1),
      () => limiter.settle('k', 'id'),
      () => limiter.settle('k', 'id', { refund: true }),
      () => limiter.renew('k', 'id', 1000),
      () => limiter.pause('k', 1),
      () => limiter.follow('k', 429, { 'retry-after': '1' }),
    ]) {
      await assert.rejects(ask, (error) => /NOPERM/.test(error.message) && !isOutage(error));
    }
  }
  assert.deepEqual([limiter.away, limiter.outages, reports, (await limiter.check('b', '9/h')).source], [false, 0, [], 'server']);
});

test('errors are judged alike in every language', async () => {
  const { cases } = JSON.parse(await readFile(resolve(import.meta.dirname, '../../cases/errors.json'), 'utf8'));
  for (const { reply, is, advice } of cases) {
    const error = new Error(reply);
    assert.equal(kindOf(error), is === 'fault' ? 'mistake' : is, reply);
    assert.equal(isOutage(error), is !== 'fault', reply);
    if (advice) assert.equal(adviceOn(error), advice, reply);
  }
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
