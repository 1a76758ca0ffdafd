// Holds, waits, costs by name, remembered denials and leases, on real servers.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Cluster } from 'ioredis';
import { createCluster } from 'redis';
import { Denied, Hold, Lease } from 'redis-ratelimit';

import { RateLimiter } from '../dist/limiter.js';
import { startCluster } from './support/cluster.js';
import { ioredis, nodeRedis } from './support/limiters.js';
import { connect, connectNodeRedis, onEachServer, startServer, until } from './support/servers.js';

async function limiters(t, port, options) {
  return [ioredis(connect(t, port), options), nodeRedis(await connectNodeRedis(t, port), options)];
}

/** How many clients wait in line. */
async function waiting(admin) {
  return Number(/waiting_clients:(\d+)/.exec(await admin.info('ratelimit'))[1]);
}

onEachServer(test, 'costs by name are corrected when a hold is settled', async (t, name) => {
  const { port } = await startServer(t, name);
  const rules = ['50/m,cost=1', 'bucket:40000/d,name=in', 'bucket:8000/d,name=out'];
  for (const [i, limiter] of (await limiters(t, port)).entries()) {
    const key = `llm:${i}`;
    const left = async () => (await limiter.peekAll(key, rules)).rules.map(({ remaining }) => remaining);
    const hold = await limiter.hold(key, rules, { cost: { in: 3000, out: 1000 }, ttlMs: 60_000 });
    assert.deepEqual(await left(), [49, 37_000, 7000]);
    assert.equal(await hold.settle({ cost: { out: 250 } }), true);
    assert.deepEqual(await left(), [49, 37_000, 7750]);
    const back = await limiter.hold(key, rules, { cost: { in: 3000, out: 1000 }, ttlMs: 60_000 });
    assert.equal(await back.refund(), true);
    assert.deepEqual(await left(), [49, 37_000, 7750]);
    assert.equal(await back.settle(), false);
    const range = await limiter.hold(`${key}:range`, '10/m', { cost: [1, 100], ttlMs: 60_000 });
    assert.equal(range.reply.granted, 10);
    assert.equal(await limiter.renew(`${key}:range`, range.id, 1000), true);
    assert.equal(await limiter.settle(`${key}:range`, range.id, { cost: 4 }), true);
    assert.deepEqual([await limiter.renew(key, 'unknown', 1000), await limiter.settle(key, 'unknown')], [false, false]);
  }
});

onEachServer(test, 'a hold renews itself, is settled at the end of its block, and says when it is lost', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  const renewed = async () => Number(/holds_renewed:(\d+)/.exec(await admin.info('ratelimit'))[1]);
  await Promise.all((await limiters(t, port)).map(async (limiter, i) => {
    const key = `jobs:${i}`;
    const take = () => limiter.hold(key, 'slots:1', { ttlMs: 2000 });
    const hold = await take();
    await until(async () => (await renewed()) >= 8); // both holds, for longer than their `ttlMs`
    assert.equal(hold.lost.aborted, false);
    await assert.rejects(take(), (error) => error instanceof Denied && error.reply.verdict === 'limited' && /^limited(, wait \d+ ms)?$/.test(error.message));
    await hold[Symbol.asyncDispose]();
    const next = await take(); // its slot is free
    assert.equal(next.lost.aborted, false);
    await limiter.reset(key);
    await until(() => next.lost.aborted);
    await next[Symbol.asyncDispose]();
    await (await take()).settle();
  }));
});

test('a hold is lost when the server cannot be reached for its time', async (t) => {
  const server = await startServer(t);
  const limiter = ioredis(connect(t, server.port), { timeoutMs: 2000 });
  const started = performance.now();
  const hold = await limiter.hold('jobs', 'slots:1', { ttlMs: 400 });
  server.pause();
  await until(() => hold.lost.aborted);
  assert.ok(performance.now() - started > 390);
  await hold[Symbol.asyncDispose](); // throws no outage
  server.resume();
});

test('holds go on in the process while the server is away', async (t) => {
  const server = await startServer(t);
  const limiter = ioredis(connect(t, server.port), { outage: 'local', timeoutMs: 250 });
  const open = ioredis(connect(t, server.port), { outage: 'allow', timeoutMs: 250 });
  await server.stop();
  const take = () => limiter.hold('jobs', 'slots:1', { ttlMs: 1000 });
  const hold = await take();
  assert.equal(hold.reply.source, 'local');
  await sleep(1500);
  await assert.rejects(take(), Denied);
  assert.equal(await hold.settle(), true);
  await (await take()).settle();
  const unlimited = [await open.hold('jobs', 'slots:1', { ttlMs: 90 }), await limiter.hold('jobs', '@unknown', { ttlMs: 90 })];
  const gone = await limiter.hold('jobs', 'slots:1', { ttlMs: 90 });
  await limiter.reset('jobs').catch(() => {});
  await until(() => gone.lost.aborted);
  for (const hold of unlimited) {
    await sleep(100);
    assert.equal(hold.lost.aborted, false);
    await hold.settle();
  }
  const tokens = await limiter.hold('tokens', '50/h', { ttlMs: 1000, cost: 40 });
  assert.equal(await tokens.settle({ cost: 10 }), true);
  await limiter.check('tokens', '50/h', { cost: 20, hold: { id: 'a', ttlMs: 1000 } });
  assert.equal(await limiter.settle('tokens', 'a', { cost: 5 }), true);
  assert.equal((await limiter.peek('tokens', '50/h')).remaining, 35);
  assert.equal((await limiter.wait('mail', '1/h', 5000)).verdict, 'allowed');
  assert.equal((await limiter.wait('mail', '1/h', 5000)).verdict, 'limited', 'without the server a wait ends at once');
});

for (const outage of ['raise', 'allow', 'deny', 'local']) {
  test(`a hold that had no reply is given back, though the server takes it later (${outage})`, async (t) => {
    t.mock.method(console, 'warn', () => {});
    const server = await startServer(t);
    const admin = connect(t, server.port);
    const settled = async () => Number(/holds_settled:(\d+)/.exec(await admin.info('ratelimit'))[1]);
    const options = { outage, timeoutMs: 250 };
    const all = [ioredis(connect(t, server.port), options), nodeRedis(await connectNodeRedis(t, server.port), options)];
    for (const limiter of all) await until(async () => (await limiter.peek('jobs', 'slots:5')).source === 'server');
    server.pause();
    const asked = await Promise.allSettled(all.flatMap((limiter) => [
      limiter.hold('jobs', 'slots:5', { ttlMs: 600_000 }),
      limiter.checkAll([{ key: 'jobs', rules: 'slots:5' }], { hold: { id: `id ${all.indexOf(limiter)}`, ttlMs: 600_000 } }),
    ]));
    server.resume();
    assert.equal(asked.filter(({ status }) => status === 'fulfilled').length, { raise: 0, allow: 4, deny: 2, local: 4 }[outage]);
    await until(async () => (await settled()) === 4);
    assert.equal((await all[0].peek('jobs', 'slots:5')).remaining, 5);
    for (const { value } of outage === 'local' ? asked : []) {
      if (value instanceof Hold) assert.equal(await value.settle(), true, 'the process keeps its own hold');
    }
  });
}

for (const outage of ['raise', 'local']) {
  test(`holds that had no reply are given back when the server is back (${outage})`, async (t) => {
    t.mock.method(console, 'warn', () => {});
    const server = await startServer(t);
    const admin = connect(t, server.port);
    const limiter = ioredis(connect(t, server.port), { outage, timeoutMs: 250 });
    await until(async () => (await limiter.peek('jobs', 'slots:9')).source === 'server');
    server.pause();
    await Promise.allSettled(Array.from({ length: 4 }, () => limiter.hold('jobs', 'slots:9', { ttlMs: 600_000 })));
    assert.ok(limiter.away, 'the settlements wait for the server');
    for (let i = 0; i < 1000; i++) await limiter.hold('jobs', 'slots:9', { ttlMs: 600_000 }).catch(() => {});
    await sleep(2500);
    server.resume();
    await until(async () => Number(/holds_settled:(\d+)/.exec(await admin.info('ratelimit'))[1]) >= 4);
    await until(async () => (await admin.call('RL.PEEK', 'jobs', 'slots:9'))[2] === 9);
    const calls = Number(/cmdstat_rl.settle:calls=(\d+)/.exec(await admin.info('commandstats'))[1]);
    assert.ok(calls < 40, `holds that were never sent are not given back: ${calls}`);
  });
}

test('a lease whose reply comes too late is given back', async (t) => {
  t.mock.method(console, 'warn', () => {});
  const server = await startServer(t);
  const admin = connect(t, server.port);
  const limiter = ioredis(connect(t, server.port), { outage: 'allow', timeoutMs: 250 });
  await until(async () => (await limiter.peek('hot', '100/h')).source === 'server');
  const lease = new Lease(limiter, 'hot', '100/h', { ttlMs: 600_000 });
  server.pause();
  assert.equal((await lease.take(30)).source, 'outage');
  server.resume();
  await until(async () => /holds_settled:1/.test(await admin.info('ratelimit')));
  assert.equal((await admin.call('RL.PEEK', 'hot', '100/h'))[2], 100);
});

onEachServer(test, 'a caller in line is served, denied at the deadline, or leaves', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  for (const [i, limiter] of (await limiters(t, port)).entries()) {
    const key = `line:${i}`;
    const hold = await limiter.hold(key, 'slots:1', { ttlMs: 20_000 });
    const controller = new AbortController();
    const leaves = limiter.wait(key, 'slots:1', 20_000, { hold: { id: 'leaves', ttlMs: 9000 }, signal: controller.signal });
    const left = assert.rejects(leaves, /aborted/);
    await until(async () => (await waiting(admin)) === 1);
    const served = limiter.hold(key, 'slots:1', { ttlMs: 9000, waitMs: 20_000 });
    const late = limiter.wait(key, 'slots:1', 200, { hold: { id: 'late', ttlMs: 9000 } });
    assert.equal((await limiter.check('other', '5/m')).verdict, 'allowed', 'others use the connection meanwhile');
    assert.equal((await late).verdict, 'limited');
    controller.abort();
    await left;
    await until(async () => (await waiting(admin)) === 1);
    await hold.settle();
    await (await served).settle();
    assert.equal(await waiting(admin), 0);
    await assert.rejects(limiter.wait(key, '5/x', 100), /ERR rule/);
    await assert.rejects(limiter.wait(key, '5/m', 100, { signal: AbortSignal.abort() }), /aborted/);
  }
  await until(async () => (await admin.info('clients')).includes('connected_clients:3')); // connections for waits do not stay
});

test('an unblocked client waits again', async (t) => {
  const { port } = await startServer(t);
  const admin = connect(t, port);
  const limiter = ioredis(connect(t, port), { outage: 'deny' });
  await limiter.check('k', 'slots:1', { hold: { id: 'b', ttlMs: 9000 } });
  const waits = limiter.wait('k', 'slots:1', 20_000, { hold: { id: 'a', ttlMs: 9000 } });
  await until(async () => (await waiting(admin)) === 1);
  const [, id] = /id=(\d+) [^\n]*flags=b/.exec(await admin.client('LIST'));
  await admin.client('UNBLOCK', id, 'ERROR');
  await until(async () => (await waiting(admin)) === 1 && (await admin.info('errorstats')).includes('errorstat_UNBLOCKED:count=1'));
  await limiter.settle('k', 'b');
  const { verdict, source } = await waits;
  assert.deepEqual({ verdict, source }, { verdict: 'allowed', source: 'server' });
  assert.ok(!limiter.away);
});

test('a server that hangs ends a wait long before its deadline', async (t) => {
  const server = await startServer(t);
  const limiter = ioredis(connect(t, server.port), { outage: 'deny', timeoutMs: 250 });
  await until(async () => (await limiter.check('k', 'slots:1', { hold: { id: 'b', ttlMs: 90_000 } })).source === 'server');
  const began = performance.now();
  const waits = limiter.wait('k', 'slots:1', 60_000, { hold: { id: 'a', ttlMs: 9000 } });
  await until(async () => (await waiting(connect(t, server.port))) === 1);
  await sleep(5500); // meanwhile the limiter asks the server once
  server.pause();
  assert.equal((await waits).source, 'outage');
  const ms = performance.now() - began;
  assert.ok(ms > 12_000 && ms < 30_000, `${ms} ms`);
});

test('callers wait in a cluster', async (t) => {
  const [{ port }] = await startCluster(t, undefined);
  const io = new Cluster([{ host: '127.0.0.1', port }]);
  const node = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] });
  for (const client of [io, node]) client.on('error', () => {});
  t.after(() => [io.disconnect(), node.destroy()]);
  await node.connect();
  for (const limiter of [ioredis(io), nodeRedis(node)]) {
    const keys = ['a', 'b', 'c', 'd', 'e'];
    const waits = keys.map((key) => limiter.wait(key, '1/s', 5000));
    assert.ok((await Promise.all(waits)).every(({ verdict }) => verdict === 'allowed'));
    assert.equal((await limiter.wait('a', '1/s', 5000)).verdict, 'allowed');
  }
});

test('a denial that is decided before units come back is forgotten', async () => {
  const replies = [];
  const server = { send: () => new Promise((resolve) => replies.push(resolve)), ended: () => false };
  const limiter = new RateLimiter(server, { rememberDenials: 9, timeoutMs: 60_000 });
  const frees = [
    () => limiter.settle('k', 'id', { refund: true }), () => limiter.settle('k', 'id', { cost: 1 }),
    () => limiter.refund('k', 1), () => limiter.reset('k'), () => limiter.resume('k'),
  ];
  for (const free of frees) {
    const [freed, denied] = [free(), limiter.check('k', '1/h')];
    await until(() => replies.length === 2);
    const [release, deny] = replies.splice(0);
    deny([1, 1, 0, 900_000, 900_000]);
    assert.equal((await denied).source, 'server');
    assert.equal((await limiter.check('k', '1/h')).source, 'denial');
    release(1);
    await freed;
    const next = limiter.check('k', '1/h');
    await until(() => replies.length === 1);
    replies.pop()([0, 1, 0, 0, 900_000]);
    assert.equal((await next).source, 'server', String(free));
  }
});

onEachServer(test, 'denials are remembered, but not those of slots', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  const limiter = ioredis(connect(t, port), { rememberDenials: 100 });
  const sources = async (...checks) => {
    const found = [];
    for (const check of checks) found.push((await check()).source);
    return found.join(' ');
  };
  await admin.call('RL.POLICY', 'SET', 'free', '1/h');
  const rate = () => limiter.check('rate', '1/h');
  assert.equal(await sources(rate, rate, rate, rate), 'server server denial denial');
  await admin.call('RL.RESET', 'rate');
  assert.equal(await sources(rate), 'denial', 'a reset by others is not seen');
  await limiter.reset('rate');
  assert.equal(await sources(rate, rate, rate), 'server server denial');
  await limiter.refund('rate', 1);
  assert.equal((await rate()).verdict, 'allowed');
  const held = () => limiter.check('held', '1/h');
  const hold = await limiter.hold('held', '1/h', { ttlMs: 60_000 });
  assert.equal(await sources(held, held), 'server denial');
  await hold.refund();
  assert.equal((await held()).verdict, 'allowed', 'what a hold gives back is seen');
  const policy = () => limiter.check('policy', '@free');
  assert.equal(await sources(policy, policy, policy), 'server server server');
  for (const rules of ['1/h', '@free']) {
    const all = () => limiter.checkAll([{ key: `all:${rules}`, rules: '9/h' }, { key: `one:${rules}`, rules }]);
    assert.equal(await sources(all, all, all), 'server server denial');
    const { verdict, key, waitMs } = await all();
    assert.deepEqual([verdict, key, waitMs > 3_500_000], ['limited', `one:${rules}`, true]);
  }
  const several = [3, 4, [2, 9], { in: 2 }].map((cost) => () => limiter.check('several', '1/h,name=in', { cost }));
  assert.equal(await sources(...several, ...several), 'server server server server denial denial denial denial');
  await limiter.check('slots', 'slots:1', { hold: { id: 'a', ttlMs: 9000 } });
  const slots = () => limiter.check('slots', 'slots:1', { hold: { id: 'b', ttlMs: 9000 } });
  assert.equal(await sources(slots, slots), 'server server');
  const charged = () => limiter.check('charged', '1/h,count=all');
  assert.equal(await sources(charged, charged, charged), 'server server server');
  const banned = () => limiter.checkAll([{ key: 'banned', rules: '1/h,ban=2h' }]);
  assert.equal(await sources(banned, banned), 'server server');
});

onEachServer(test, 'leases hand out what the limit allows, and give back the rest', async (t, name) => {
  const { port } = await startServer(t, name);
  const limiter = ioredis(connect(t, port));
  const leases = Array.from({ length: 4 }, () => new Lease(limiter, 'hot', '500/h'));
  const take = async (lease) => {
    let taken = 0;
    while ((await lease.take()).verdict === 'allowed') taken += 1;
    return taken;
  };
  const taken = await Promise.all(leases.map(take));
  assert.ok(taken.reduce((sum, units) => sum + units) <= 500);
  assert.equal((await leases[0].take()).source, 'denial');
  await Promise.all(leases.map((lease) => lease.close()));
  const { remaining } = await limiter.peek('hot', '500/h');
  assert.equal(remaining, 500 - taken.reduce((sum, units) => sum + units), 'all units that were not handed out are back');

  const slow = new Lease(limiter, 'slow', '1000/h', { ttlMs: 200 });
  for (let i = 0; i < 20; i++) await slow.take();
  await until(async () => (await limiter.peek('slow', '1000/h')).remaining === 980); // at half its time
  assert.equal((await slow.take(5)).verdict, 'allowed');
  await slow.close();
  assert.equal((await limiter.peek('slow', '1000/h')).remaining, 975);
  assert.equal((await slow.take(2000)).waitMs, -1);
});

onEachServer(test, 'units under shadow rules are leased and settled, and an exempt key has no lease', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  const limiter = ioredis(connect(t, port));
  const checks = async () => Number(/cmdstat_rl\.check:calls=(\d+)/i.exec(await admin.info('commandstats'))[1]);
  const take = async (lease, times) => {
    for (let i = 0; i < times; i++) assert.equal((await lease.take()).verdict, 'allowed');
  };
  const shadow = new Lease(limiter, 'k', 'bucket:100/d,shadow', { ttlMs: 600_000, most: 50 });
  await take(shadow, 20);
  assert.ok((await checks()) < 20, 'the lease takes units ahead');
  await shadow.close();
  assert.equal((await limiter.peekAll('k', 'bucket:100/d,shadow')).rules[0].remaining, 80);
  assert.match((await limiter.call('RL.INFO', 'k')).join(), /holds,0,/);

  await admin.call('RL.EXEMPT', 'friend');
  const exempt = new Lease(limiter, 'friend', '0/s');
  await take(exempt, 4);
  await admin.call('RL.UNEXEMPT', 'friend');
  assert.equal((await exempt.take()).verdict, 'limited', 'the lease took nothing ahead');
  await exempt.close();
});

onEachServer(test, 'units of a leaky rule say how long to wait', async (t, name) => {
  const { port } = await startServer(t, name);
  const lease = new Lease(ioredis(connect(t, port)), 'k', 'leaky:1/h,queue=9', { most: 1 });
  const waits = [await lease.take(), await lease.take()].map(({ waitMs }) => waitMs);
  assert.ok(waits[0] === 0 && waits[1] > 3_500_000, waits.join());
  await lease.close();
});

test('a lease without rules passes', async () => {
  const limiter = new RateLimiter({ send: () => assert.fail('nothing is sent') });
  const { verdict, source } = await new Lease(limiter, 'k', []).take();
  assert.deepEqual([verdict, source], ['allowed', 'local']);
});

test('a lease remembers a block for a second', async (t) => {
  const redis = connect(t, (await startServer(t)).port);
  const lease = new Lease(ioredis(redis), 'k', '10/h');
  await redis.call('RL.BLOCK', 'k', 'EX', '3600');
  assert.equal((await lease.take()).verdict, 'blocked');
  const again = await lease.take();
  assert.deepEqual([again.verdict, again.source], ['blocked', 'denial']);
  await redis.call('RL.UNBLOCK', 'k');
  while ((await lease.take()).verdict !== 'allowed') await sleep(50);
  await lease.close();
});

test('a lease answers as its limiter while the server is away', async (t) => {
  const server = await startServer(t);
  const lease = new Lease(ioredis(connect(t, server.port), { outage: 'local', timeoutMs: 250 }), 'k', '3/h');
  await server.stop();
  const found = [];
  for (let i = 0; i < 5; i++) found.push(await lease.take());
  assert.deepEqual(found.map(({ verdict }) => verdict), ['allowed', 'allowed', 'allowed', 'limited', 'limited']);
  assert.equal(found[4].source, 'local');
  await lease.close();
});

onEachServer(test, 'holds whose taking is cancelled keep no slots', async (t, name) => {
  const { port } = await startServer(t, name);
  for (const [i, limiter] of (await limiters(t, port)).entries()) {
    for (const waitMs of [undefined, 20_000]) {
      const key = `jobs:${i}:${waitMs}`;
      const outcomes = [];
      for (let round = 0; round < 5; round++) {
        const controllers = Array.from({ length: 20 }, () => new AbortController());
        const take = ({ signal }) => limiter.hold(key, 'slots:15', { ttlMs: 3_600_000, signal, ...(waitMs && { waitMs }) });
        const taking = controllers.map((controller) => take(controller).then((hold) => hold[Symbol.asyncDispose](), (error) => error.name));
        if (round > 0) await sleep(round); // before, while and after the server decides
        for (const controller of controllers) controller.abort();
        outcomes.push(...(await Promise.all(taking)));
      }
      assert.ok(outcomes.includes('AbortError'));
      await until(async () => (await limiter.peek(key, 'slots:15')).remaining === 15);
    }
    const leaky = new AbortController();
    await limiter.hold(`turns:${i}`, 'leaky:1/h,queue=9', { ttlMs: 3_600_000 });
    const turn = limiter.hold(`turns:${i}`, ['leaky:1/h,queue=9', 'slots:1'], { ttlMs: 3_600_000, signal: leaky.signal });
    await until(async () => (await limiter.peek(`turns:${i}`, 'slots:1')).remaining === 0);
    leaky.abort();
    await assert.rejects(turn, { name: 'AbortError' });
    assert.equal((await limiter.peek(`turns:${i}`, 'slots:1')).remaining, 1, 'a caller that leaves before its turn keeps no slot');
  }
});
