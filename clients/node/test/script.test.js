// The engine `script`, on servers without the module.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';

import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import Fastify from 'fastify';
import { isOutage, Lease } from 'redis-ratelimit';
import { rateLimit } from 'redis-ratelimit/express';
import { RateLimitStore } from 'redis-ratelimit/express-rate-limit';
import { rateLimit as fastifyHook } from 'redis-ratelimit/fastify';
import { RateLimitThrottlerStorage } from 'redis-ratelimit/nestjs';

import { charges, loaded, reportOf } from '../dist/script.js';
import { readReply } from '../dist/replies.js';
import { ioredis, nodeRedis } from './support/limiters.js';
import { connect, connectNodeRedis, onEachServer, serve, startServer } from './support/servers.js';

const read = (path) => readFile(resolve(import.meta.dirname, '../..', path), 'utf8');
const SHARED = JSON.parse(await read('cases/script.json'));
const NEEDS = "needs the module, but the engine is 'script'";
const SCRIPT = { engine: 'script' };
const plainServer = (t, name, options) => startServer(t, name, options, 'PONG', { bare: true });
const camelCase = (fields) => Object.fromEntries(Object.entries(fields).map(([name, value]) => [name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()), value]));

test('the package has the script of all languages', async () => {
  assert.equal(loaded().text, await read('script/ratelimit.lua'));
});

test('a report says what five integers tell', () => {
  for (const { rules, cost, reply, rule } of SHARED.reports) {
    const report = reportOf(readReply(reply, false), { key: 'k', rules }, cost);
    assert.deepEqual(report.rules, rule ? [{ ...camelCase(rule), shadow: false }] : []);
    assert.equal(report.waitMs, reply[3]);
  }
  for (const { rules, cost, charges: expected } of SHARED.charges) {
    assert.deepEqual(Object.fromEntries(charges(rules, cost)), expected);
  }
});

test('calls that need the module are refused at once', async () => {
  const limiter = ioredis({ options: {}, on() {} }, { ...SCRIPT, outage: 'allow' }); // no client: nothing is sent
  const pool = [{ key: 'a', rules: '2/m' }];
  for (const [what, ask] of [
    ['wait', () => limiter.wait('a', '2/m', 1000)],
    ['hold', () => limiter.hold('a', '2/m', { ttlMs: 1000 })],
    ['HOLD', () => limiter.check('a', '2/m', { hold: { id: 'id', ttlMs: 1000 } })],
    ['HOLD', () => limiter.checkAll(pool, { hold: { id: 'id', ttlMs: 1000 } })],
    ['META', () => limiter.checkAll(pool, { meta: 'who' })],
    ['RL.MCHECK', () => limiter.checkAny(pool)],
    ['FULL', () => limiter.peekAll('a', '2/m')],
    ['RL.SETTLE', () => limiter.settle('a', 'id')],
    ['RL.SETTLE', () => limiter.settle('a', 'id', { refund: true })],
    ['RL.RENEW', () => limiter.renew('a', 'id', 1000)],
    ['pause', () => limiter.pause('a', 1000)],
    ['RL.RESUME', () => limiter.resume('a')],
    ['RL.PLAN', () => limiter.plan('a', 'free')],
    ['RL.UNPLAN', () => limiter.unplan('a')],
    ['RL.SYNC', () => limiter.sync('a', 1, '2/m')],
    ['follow', () => limiter.follow('a', 200, {})],
    ['RL.INFO', () => limiter.call('RL.INFO', 'a')],
    ['a range of costs', () => limiter.check('a', '2/m', { cost: [1, 2] })],
    ['a range of costs', () => limiter.checkAll(pool, { cost: [1, 2] })],
  ]) {
    await assert.rejects(ask(), { name: 'TypeError', message: `${what} ${NEEDS}` });
  }
  assert.throws(() => new Lease(limiter, 'a', '2/m'), { name: 'TypeError', message: `a lease ${NEEDS}` });
  for (const { rule, error } of SHARED.refused) {
    await assert.rejects(limiter.check('a', ['5/m', rule]), { name: 'TypeError', message: error });
    await assert.rejects(limiter.refund('a', 1, rule), { name: 'TypeError', message: error });
    for (const make of [rateLimit, fastifyHook]) {
      assert.throws(() => make(limiter, ['5/m', rule]), rule.startsWith('slots') ? /slots are held/ : { message: error });
    }
  }
  assert.throws(() => rateLimit(limiter, '5/m', { count: 'failed' }), { name: 'TypeError', message: `count: 'failed' ${NEEDS}` });
  const storage = new RateLimitThrottlerStorage(limiter);
  await assert.rejects(storage.increment('a', 1000, 5, 2000, 'name'), ({ cause }) => cause.message.startsWith('ban in the rule '));
  assert.equal(limiter.outages, 0);
});

test('a client without the rights is told which it needs', async (t) => {
  const { port } = await plainServer(t);
  await connect(t, port).call('ACL', 'SETUSER', 'nobody', 'on', 'nopass', '~*', '+@connection', '+info', '-eval', '-evalsha');
  const told = [];
  const client = connect(t, port, { username: 'nobody', password: 'any' });
  const limiter = ioredis(client, { ...SCRIPT, outage: 'allow', onMisconfigured: (event) => told.push(event) });
  assert.equal((await limiter.check('a', '2/m')).source, 'outage');
  assert.match(told[0].advice, /\+evalsha/);
});

onEachServer(test, 'middlewares and stores limit', async (t, name) => {
  const { port } = await plainServer(t, name);
  const limiter = ioredis(connect(t, port), SCRIPT);
  const limits = () => [{ key: 'ip', rules: ['9/d,name=day', 'bucket:9/h,burst=10'] }, { key: 'user', rules: '2/d,name=user' }];
  const get = await serve(t, express().get('/', rateLimit(limiter, limits), (_req, res) => res.send('here')));
  const found = [await get('/'), await get('/'), await get('/')];
  assert.deepEqual(found.map(({ status }) => status), [200, 200, 429]);
  assert.equal(found[0].headers.get('ratelimit-policy'), '"day";q=9;w=86400, "user";q=2;w=86400');
  assert.equal(found[0].headers.get('ratelimit'), '"day";r=8;t=86400, "user";r=1;t=86400');
  assert.match(found[2].headers.get('retry-after'), /^86\d\d\d$/);
  assert.deepEqual((await found[2].json())['violated-policies'], ['user']);

  const app = Fastify();
  t.after(() => app.close());
  app.addHook('onRequest', fastifyHook(limiter, '2/d'));
  app.get('/', async () => 'here');
  const codes = [];
  for (let i = 0; i < 3; i++) codes.push((await app.inject('/')).statusCode);
  assert.deepEqual(codes, [200, 200, 429]);

  const options = { windowMs: 60_000, limit: 2, store: new RateLimitStore(limiter), validate: false };
  const stored = await serve(t, express().get('/', expressRateLimit(options), (_req, res) => res.send('here')));
  assert.deepEqual([(await stored('/')).status, (await stored('/')).status, (await stored('/')).status], [200, 200, 429]);
  const storage = new RateLimitThrottlerStorage(limiter);
  const blocked = [];
  for (let i = 0; i < 3; i++) blocked.push((await storage.increment('a', 60_000, 2, 0, 'name')).isBlocked);
  assert.deepEqual(blocked, [false, false, true]);
});
