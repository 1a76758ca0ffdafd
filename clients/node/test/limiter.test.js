import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Redis as Iovalkey } from 'iovalkey';

import { ioredis, iovalkey, nodeRedis } from './support/limiters.js';
import { connect, connectNodeRedis, onEachServer, startServer } from './support/servers.js';

/** A limiter for each client library and protocol, on one server. */
async function limiters(t, port) {
  const found = {};
  for (const protocol of [2, 3]) {
    found[`ioredis, RESP${protocol}`] = ioredis(connect(t, port, { protocol }));
    found[`node-redis, RESP${protocol}`] = nodeRedis(await connectNodeRedis(t, port, { RESP: protocol }));
  }
  found.iovalkey = iovalkey(connect(t, port, {}, Iovalkey));
  return Object.entries(found);
}

onEachServer(test, 'checks reply alike through each client library and protocol', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  for (const [through, limiter] of await limiters(t, port)) {
    await admin.flushall();
    const first = await limiter.check('login:42', ['2/h', '3/d']);
    assert.deepEqual({ ...first }, { verdict: 'allowed', limit: 2, remaining: 1, waitMs: 0, resetMs: 3_600_000, source: 'server' }, through);
    await limiter.check('login:42', ['2/h', '3/d']);
    const peeked = await limiter.peek('login:42', '2/h');
    assert.equal(peeked.verdict, 'limited', through);
    const denied = await limiter.check('login:42', ['2/h', '3/d']);
    assert.equal(denied.verdict, 'limited', through);
    assert.ok(denied.waitMs > 3_500_000 && denied.waitMs <= 3_600_000, through);

    assert.equal(await limiter.refund('login:42', 1, '2/h'), 1, through);
    assert.equal((await limiter.peek('login:42', '2/h')).remaining, 1, through);
    await limiter.reset('login:42');
    assert.equal((await limiter.peek('login:42', '2/h')).remaining, 2, through);
    assert.equal((await limiter.peek('login:42', '2/h', { cost: 3 })).waitMs, -1, through);

    assert.equal((await limiter.check('cost', '10/h', { cost: 4, meta: 'from a test' })).remaining, 6, through);
    assert.equal((await limiter.check('cost', '10/h', { cost: [1, 100] })).granted, 6, through);
    assert.match(String(await admin.call('RL.LOG', 'cost')), /from a test/, through);

    assert.equal(await limiter.call('RL.SETTLE', 'cost', 'unknown'), 0, through);
    await admin.call('RL.BLOCK', 'cost', 'EX', 100);
    assert.equal((await limiter.check('cost', '10/h')).verdict, 'blocked', through);
    await admin.call('RL.EXEMPT', 'free');
    const exempt = { verdict: 'allowed', limit: -1, remaining: -1, waitMs: 0, resetMs: 0, source: 'server' };
    assert.deepEqual({ ...(await limiter.check('free', '10/h')) }, exempt, through);
  }
});

onEachServer(test, 'reports show each rule and key through each client library and protocol', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  for (const [through, limiter] of await limiters(t, port)) {
    await admin.flushall();
    const limits = [
      { key: 'ip:1', rules: '5/h' },
      { key: 'user:42', rules: ['2/h,name=hour', '1/m,shadow'] },
    ];
    const report = await limiter.checkAll(limits, { cost: 2 });
    assert.equal(report.verdict, 'allowed', through);
    assert.deepEqual(
      report.rules.map(({ key, name, quota, periodMs, remaining, denies, shadow }) => [key, name, quota, periodMs, remaining, denies, shadow]),
      [
        ['ip:1', null, 5, 3_600_000, 3, false, false],
        ['user:42', 'hour', 2, 3_600_000, 0, false, false],
        ['user:42', null, 1, 60_000, 0, true, true],
      ],
      through,
    );
    const denied = await limiter.checkAll(limits);
    assert.deepEqual([denied.verdict, denied.key], ['limited', 'user:42'], through);
    assert.equal((await limiter.peekAll('ip:1', '5/h')).rules[0].remaining, 3, 'a denial charges no key');
    assert.equal((await limiter.checkAll([{ key: 'one', rules: '5/h' }])).rules[0].remaining, 4, through);
    const pool = [{ key: '{p}a', rules: '1/h' }, { key: '{p}b', rules: ['2/h', '9/d,name=day'] }];
    const chosen = [];
    for (let i = 0; i < 3; i += 1) chosen.push((await limiter.checkAny(pool)).key);
    assert.deepEqual(chosen, ['{p}a', '{p}b', '{p}b'], through);
    const full = await limiter.checkAny(pool, { most: true, cost: [1, 9], meta: 'who' });
    assert.deepEqual([full.verdict, full.granted, new Set(full.rules.map(({ key }) => key))], ['limited', 0, new Set([full.key])], through);
    const even = [{ key: '{q}a', rules: '3/h' }, { key: '{q}b', rules: '2/h' }];
    assert.equal((await limiter.checkAny(even, { most: true, cost: 2 })).key, '{q}a', through);
    assert.equal((await limiter.checkAny(even, { most: true })).key, '{q}b', through);
    await admin.call('RL.BLOCK', 'one', 'EX', 100, 'REASON', 'a test');
    assert.equal((await limiter.checkAll([{ key: 'one', rules: '5/h' }])).verdict, 'blocked', through);
  }
});

test('costs by name are the same for keys that are asked separately', async (t) => {
  const client = connect(t, (await startServer(t)).port);
  await client.call('RL.POLICY', 'SET', 'plan', '9/h,name=out', 'bucket:9/d,name=day');
  for (const separately of [false, true]) {
    await client.flushall();
    const limiter = ioredis(client, { separately });
    const check = async (cost, ...limits) =>
      (await limiter.checkAll(limits.map(([key, rules]) => ({ key, rules })), { cost })).rules.map((rule) => rule.cost);
    const both = [['a', '9/h,name=in'], ['b', ['9/h,name=out', 'bucket:9/m,name=inner']]];
    assert.deepEqual(await check({ in: 5, out: 2 }, ...both), [5, 2, 1]);
    assert.deepEqual(await check({ in: 3, '': 2 }, ...both), [3, 2, 2]);
    assert.deepEqual(await check({ in: 2, out: 3, other: 4 }, ['c', '9/h,name=in'], ['d', '@plan']), [2, 3, 1]);
    assert.deepEqual(await check({ out: 3, '': 2 }, ['c', '9/h,name=in'], ['d', '@plan']), [2, 3, 2]);
    await assert.rejects(check({ typo: 1, in: 1 }, ...both), /COST typo= is for no rule here/);
    await assert.rejects(check(1, both[0], ['b', '5/x']), /5\/x/);
    assert.equal((await limiter.peek('a', '9/h,name=in')).remaining, 1, 'an error charges no key');
    if (separately) await assert.rejects(check([1, 2], ...both), /range/);
  }
});

onEachServer(test, 'rights to the commands and their keys are enough, without a right to run scripts', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  await admin.call('ACL', 'SETUSER', 'app', 'on', '>pw', 'resetkeys', '~rl:*', '-@all', '+rl.check', '+rl.peek', '+rl.refund', '+rl.reset');
  const limiter = ioredis(connect(t, port, { username: 'app', password: 'pw', enableReadyCheck: false, disableClientInfo: true }));
  assert.equal((await limiter.check('rl:1', '5/h')).verdict, 'allowed');
  await assert.rejects(limiter.check('other:1', '5/h'), /NOPERM/);
});
