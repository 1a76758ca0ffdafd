// The engine `script`, on servers without the module.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';

import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import Fastify from 'fastify';
import { Cluster } from 'ioredis';
import { Redis as Iovalkey } from 'iovalkey';
import { createCluster } from 'redis';
import { isOutage, Lease } from 'redis-ratelimit';
import { rateLimit } from 'redis-ratelimit/express';
import { RateLimitStore } from 'redis-ratelimit/express-rate-limit';
import { rateLimit as fastifyHook } from 'redis-ratelimit/fastify';
import { RateLimitThrottlerStorage } from 'redis-ratelimit/nestjs';

import { charges, loaded, reportOf } from '../dist/script.js';
import { readReply } from '../dist/replies.js';
import { startCluster } from './support/cluster.js';
import { ioredis, iovalkey, nodeRedis, outageAmidKeys } from './support/limiters.js';
import { connect, connectNodeRedis, freePort, NAMES, onEachServer, serve, startServer, until } from './support/servers.js';

const read = (path) => readFile(resolve(import.meta.dirname, '../..', path), 'utf8');
const SHARED = JSON.parse(await read('cases/script.json'));
const NEEDS = "needs the module, but the engine is 'script'";
const SCRIPT = { engine: 'script' };
const plainServer = (t, name, options) => startServer(t, name, options, 'PONG', { bare: true });
const camelCase = (fields) => Object.fromEntries(Object.entries(fields).map(([name, value]) => [name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()), value]));

test('the package has the script of all languages', async () => {
  assert.equal(loaded().text, await read('script/ratelimit.lua'));
});

async function answers(limiter) {
  for (const { check, peek, refund, reset, rules, cost, units, reply } of SHARED.calls) {
    if (reset) await limiter.reset(reset);
    else if (refund) assert.equal(await limiter.refund(refund, units, rules), reply);
    else {
      const options = cost === undefined ? {} : { cost };
      const { verdict, limit, remaining } = check ? await limiter.check(check, rules, options) : await limiter.peek(peek, rules, options);
      assert.deepEqual([verdict, limit, remaining], reply, check ?? peek);
    }
  }
}

onEachServer(test, 'the script answers the same in all languages', async (t, name) => {
  const { port } = await plainServer(t, name);
  const client = connect(t, port);
  for (const limiter of [
    ioredis(client, SCRIPT),
    ioredis(connect(t, port, { protocol: 3 }), SCRIPT),
    iovalkey(connect(t, port, {}, Iovalkey), SCRIPT),
    nodeRedis(await connectNodeRedis(t, port), SCRIPT),
    nodeRedis(await connectNodeRedis(t, port, { RESP: 3 }), SCRIPT),
  ]) {
    await client.flushall();
    await answers(limiter);
    const keys = await client.keys('*');
    assert.ok(keys.includes('{a}tag:script') && keys.every((key) => key.endsWith(':script')), keys.join());
  }
  await ioredis(connect(t, port, { keyPrefix: 'app:' }), SCRIPT).check('a', '1/d');
  assert.equal(await client.exists('app:a:script'), 1);
});

test('a report says what five integers tell', () => {
  for (const { rules, cost, reply, rule } of SHARED.reports) {
    const report = reportOf(readReply(reply), { key: 'k', rules }, cost);
    assert.deepEqual(report.rules, rule ? [{ ...camelCase(rule), key: 'k', shadow: false }] : []);
    assert.deepEqual([report.waitMs, report.key], [reply[3], 'k']);
  }
  for (const { rules, cost, charges: expected } of SHARED.charges) {
    assert.deepEqual(Object.fromEntries(charges(rules, cost)), expected);
  }
});

onEachServer(test, 'a server that has forgotten the script gets it again', async (t, name) => {
  const { port } = await plainServer(t, name);
  const client = connect(t, port);
  for (const limiter of [ioredis(connect(t, port), SCRIPT), nodeRedis(await connectNodeRedis(t, port), SCRIPT)]) {
    await client.flushall();
    for (const remaining of [2, 1]) {
      await client.script('FLUSH');
      assert.equal((await limiter.check('a', '3/d')).remaining, remaining);
    }
    await client.config('RESETSTAT');
    assert.equal((await limiter.check('a', '3/d')).remaining, 0);
    assert.doesNotMatch(await client.info('commandstats'), /cmdstat_eval:/);
    await Promise.all([client.script('FLUSH'), ...Array.from({ length: 20 }, () => limiter.check('many', '100/d'))]);
    assert.equal((await limiter.peek('many', '100/d')).remaining, 80);
  }
});

onEachServer(test, 'a denial gives back the charges of other keys, and is remembered', async (t, name) => {
  const { port } = await plainServer(t, name);
  const limiter = ioredis(connect(t, port), SCRIPT);
  const limits = [{ key: 'ip', rules: ['9/d,name=in', 'bucket:9/d,name=out,cost=2', 'window:9/d'] }, { key: 'user', rules: '2/d' }];
  const first = await limiter.checkAll(limits, { cost: { in: 3 } });
  assert.deepEqual([first.verdict, first.rules.map(({ key }) => key)], ['allowed', ['ip', 'user']]);
  assert.equal((await limiter.checkAll(limits, { cost: { in: 2 } })).verdict, 'allowed');
  const denied = await limiter.checkAll(limits, { cost: { in: 4 } });
  assert.deepEqual([denied.verdict, denied.key, denied.rules.map(({ denies }) => denies)], ['limited', 'user', [false, true]]);
  const left = await Promise.all(limits[0].rules.map(async (rule) => (await limiter.peek('ip', rule)).remaining));
  assert.deepEqual(left, [4, 5, 7]);
  await assert.rejects(limiter.checkAll([limits[0], limits[0]]), /given twice/);
  await assert.rejects(limiter.checkAll([{ key: 'other', rules: '2/d' }, { key: 'b', rules: '5/x' }]), /5\/x/);
  assert.equal((await limiter.peek('other', '2/d')).remaining, 2, 'an error charges no key');

  const remembers = ioredis(connect(t, port), { ...SCRIPT, rememberDenials: 10 });
  const sources = async (ask) => [(await ask()).source, (await ask()).source, (await ask()).source];
  assert.deepEqual(await sources(() => remembers.check('a', '1/d')), ['server', 'server', 'denial']);
  const pair = [{ key: 'b', rules: '9/d' }, { key: 'c', rules: '1/d' }];
  assert.deepEqual(await sources(() => remembers.checkAll(pair)), ['server', 'server', 'denial']);
  await remembers.refund('a', 1, '1/d');
  await remembers.reset('c');
  assert.deepEqual([(await remembers.check('a', '1/d')).verdict, (await remembers.checkAll(pair)).verdict], ['allowed', 'allowed']);
  const all = [{ key: 'd', rules: ['9/d,count=all', 'window:1/d'] }];
  assert.deepEqual(await sources(() => remembers.checkAll(all)), ['server', 'server', 'server'], 'the server must count these');
});

test('outages are answered as chosen', async (t) => {
  const limits = [{ key: 'a', rules: '2/m' }, { key: 'b', rules: '1/m' }];
  const client = connect(t, await freePort());
  for (const [outage, verdicts] of [
    ['allow', ['allowed', 'allowed', 'allowed', 'allowed']],
    ['deny', ['limited', 'limited', 'limited', 'limited']],
    ['local', ['allowed', 'limited', 'limited', 'limited']],
  ]) {
    const limiter = ioredis(client, { ...SCRIPT, outage });
    const found = [];
    for (let i = 0; i < 4; i++) found.push((await limiter.checkAll(limits)).verdict);
    assert.deepEqual(found, verdicts);
    assert.ok(limiter.away);
  }
  await assert.rejects(ioredis(client, SCRIPT).checkAll(limits), isOutage);

  const full = await plainServer(t, undefined, ['--maxmemory', 1]);
  await assert.rejects(ioredis(connect(t, full.port), SCRIPT).check('a', '2/m'), (error) => isOutage(error) && /^OOM/.test(error.message));

  const { port, pause, resume } = await plainServer(t);
  const limiter = ioredis(connect(t, port), { ...SCRIPT, outage: 'local', timeoutMs: 500 });
  pause();
  for (let i = 0; i < 4; i++) assert.equal((await limiter.check('a', '9/m')).source, 'local');
  resume();
  await until(async () => (await limiter.check('a', '9000/m')).source === 'server');
});

test('an outage amid a check of several keys charges none, and delays no answer', async (t) => {
  await outageAmidKeys(t, (await plainServer(t)).port, SCRIPT);
});

test('calls that need the module are refused at once', async () => {
  const limiter = ioredis({ options: {}, duplicate() {} }, { ...SCRIPT, outage: 'allow' }); // no client: nothing is sent
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

for (const name of ['redis-7.0', 'valkey-9.1'].filter((name) => NAMES.includes(name))) {
  test(`in a cluster each key is asked at its node (${name})`, async (t) => {
    const nodes = await startCluster(t, name, [], { bare: true });
    const [{ port }] = nodes;
    const client = new Cluster([{ host: '127.0.0.1', port }]);
    const other = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] });
    for (const one of [client, other]) one.on('error', () => {});
    t.after(() => (client.disconnect(), other.destroy()));
    await other.connect();
    const limits = [{ key: 'ip:203.0.113.9', rules: '5/d' }, { key: 'user:42', rules: '2/d' }];
    for (const limiter of [ioredis(client, SCRIPT), nodeRedis(other, SCRIPT)]) {
      for (let i = 0; i < 30; i++) assert.equal((await limiter.check(`one:${i}`, '2/d')).verdict, 'allowed');
      const verdicts = [];
      for (let i = 0; i < 3; i++) verdicts.push((await limiter.checkAll(limits)).verdict);
      assert.deepEqual(verdicts, ['allowed', 'allowed', 'limited']);
      assert.equal((await limiter.peek('ip:203.0.113.9', '5/d')).remaining, 3);
      for (const { key } of limits) await limiter.reset(key);
    }
  });
}
