// Keys that follow what an upstream's answers say, and flows in line, on real servers.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { fieldsOf, pauseMs, unitsOf } from '../dist/upstream.js';
import { ioredis as plain } from 'redis-ratelimit/ioredis';
import { Denied } from 'redis-ratelimit';

import { ioredis, nodeRedis } from './support/limiters.js';
import { connect, connectNodeRedis, onEachServer, startServer, until } from './support/servers.js';

const NOW_S = 1_800_000_000;
const DAYS_366_S = 366 * 86_400;
const REMAINING = 'x-ratelimit-remaining';

async function limiters(t, port, options) {
  return [ioredis(connect(t, port), options), nodeRedis(await connectNodeRedis(t, port), options)];
}

/** Waits until this number of clients waits in line. */
async function waiting(admin, clients) {
  await until(async () => (await admin.info('ratelimit')).includes(`waiting_clients:${clients}\r`));
}

test('fields say how long to pause', () => {
  const date = (afterS) => new Date((NOW_S + afterS) * 1000).toUTCString();
  for (const [status, headers, ms] of [
    [429, { 'retry-after': '30' }, 30_000],
    [503, { 'retry-after': ' 0.25 ' }, 250],
    [200, { 'retry-after': '30' }, 0],
    [429, { 'retry-after': date(30) }, 30_000],
    [429, { 'retry-after': date(30), date: date(10) }, 20_000],
    [429, { 'retry-after': `${DAYS_366_S}` }, DAYS_366_S * 1000],
    [429, { 'retry-after': `${DAYS_366_S + 1}` }, 0],
    [429, { 'retry-after': '9'.repeat(40) }, 0],
    [429, { 'retry-after': date(DAYS_366_S + 1) }, 0],
    [429, { 'retry-after': date(-1) }, 0],
    [429, { 'retry-after': '0', 'x-ratelimit-reset': '30' }, 0],
    [429, { 'retry-after': '-30' }, 0],
    [429, { 'retry-after': 'soon' }, 0],
    [429, { 'retry-after': 'soon', 'x-ratelimit-reset': '7' }, 7000],
    [429, { 'retry-after': '1/30/2027' }, 0],
    [429, {}, 0],
    [429, { ratelimit: '"burst";r=0;t=30' }, 30_000],
    [429, { ratelimit: '"a,;t=9";r=0;t=1, "b";t=60;r=0;pk=:YQ==:, "c";r=5;t=3600' }, 60_000],
    [429, { ratelimit: '"burst";r=0;t=-30' }, 0],
    [429, { ratelimit: '"burst";r=0;t=1e9' }, 0],
    [429, { 'ratelimit-reset': '2' }, 2000],
    [429, { 'x-ratelimit-reset': `${NOW_S + 90}` }, 90_000],
    [429, { 'x-ratelimit-reset': `${NOW_S - 90}` }, 0],
    [503, { 'x-ratelimit-reset': '7' }, 0],
  ]) {
    assert.equal(pauseMs(status, fieldsOf(headers), NOW_S * 1000), ms, JSON.stringify(headers));
  }
});

test('an answer pauses its key equally long in every language', async () => {
  const file = resolve(import.meta.dirname, '../../cases/upstream.json');
  const { now_s, cases } = JSON.parse(await readFile(file, 'utf8'));
  for (const { status, headers, pause_ms } of cases) {
    assert.equal(pauseMs(status, fieldsOf(headers), now_s * 1000), pause_ms, JSON.stringify(headers));
  }
  const of850 = (date) => pauseMs(429, fieldsOf({ 'retry-after': date }), Date.UTC(2026, 0, 1));
  assert.equal(of850('Thursday, 01-Jan-26 00:00:30 GMT'), 30_000);
  assert.equal(of850('Friday, 01-Jan-77 00:00:30 GMT'), 0, 'more than 50 years ahead is the past');
});

test('fields say what remains', () => {
  const nonsense = [undefined, '', '-1', 'many', '1.5', '9'.repeat(40), '"a";t=60', '"a";r=-3', '"a";r=many'];
  for (const text of nonsense) assert.equal(unitsOf(text), undefined, text);
  for (const [text, left] of [['12', 12], [' 0 ', 0], ['"a";r=9;t=60, "b;r=1";r=7', 7]]) assert.equal(unitsOf(text), left, text);
});

test('headers of any client are read', () => {
  const both = [['ratelimit', '"a";r=9, "b";r=7']];
  const headers = new Headers([['RateLimit', '"a";r=9'], ['ratelimit', '"b";r=7']]);
  for (const given of [headers, { RateLimit: ['"a";r=9', '"b";r=7'] }, new Map([['RateLimit', '"a";r=9'], ['ratelimit', '"b";r=7']]), { forEach: (see) => headers.forEach(see) }]) {
    assert.deepEqual([...fieldsOf(given)], both);
  }
  assert.equal(unitsOf(fieldsOf({ a: undefined }).get('a')), undefined);
});

onEachServer(test, 'a key pauses, syncs and follows its upstream', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  await admin.call('RL.POLICY', 'SET', 'p', '100/m');
  for (const [i, limiter] of (await limiters(t, port)).entries()) {
    const key = `k:${i}`;
    const left = async (rule = '100/m') => (await limiter.peek(key, rule)).remaining;
    assert.equal(await limiter.pause(key, 30_000, '429'), 30_000);
    assert.ok((await limiter.pause(key, 5000)) > 29_000, 'it only grows');
    const denied = await limiter.check(key, '100/m');
    assert.deepEqual([denied.verdict, denied.waitMs > 29_000], ['limited', true]);
    assert.match(JSON.stringify(await admin.call('RL.INFO', key)), /"pause_reason","429"/);
    assert.deepEqual([await limiter.resume(key), await limiter.resume(key)], [true, false]);
    assert.deepEqual([await limiter.sync(key, 90, '100/m'), await limiter.sync(key, 95, '100/m')], [10, 0]);

    const rules = { 'X-RateLimit-Remaining-Requests': '100/m', RateLimit: 'bucket:500/d' };
    const told = new Headers({ 'x-ratelimit-remaining-requests': '12', ratelimit: '"day";r=40;t=60' });
    assert.equal(await limiter.follow(key, 200, told, rules), 0);
    assert.deepEqual([await left(), await left('bucket:500/d')], [12, 40]);
    assert.equal(await limiter.follow(key, 503, { 'Retry-After': '30' }, rules), 30_000);
    assert.equal(await limiter.follow(key, 200, { [REMAINING]: '5' }, { [REMAINING]: '100/m' }), 0);
    await limiter.resume(key);
    assert.equal(await left(), 5, 'also while it is paused');

    for (const rule of ['100/m', '@p']) {
      for (const text of ['-1', 'many', '101', '9'.repeat(12), '9'.repeat(40), '']) {
        assert.equal(await limiter.follow(key, 429, { [REMAINING]: text, 'retry-after': `-${text}` }, { [REMAINING]: rule }), 0);
      }
      assert.equal(await limiter.follow(key, 200, {}, { [REMAINING]: rule }), 0);
    }
    assert.equal(await left(), 5);
  }
});

onEachServer(test, 'flows take turns by weight, and a priority goes first', async (t, name) => {
  const { port } = await startServer(t, name);
  const admin = connect(t, port);
  for (const [i, limiter] of (await limiters(t, port)).entries()) {
    const key = `line:${i}`;
    const served = [];
    await limiter.pause(key, 20_000);
    const waits = [];
    for (const [flow, turn] of [['a', {}], ['b', { weight: 3 }]].flatMap((one) => Array(6).fill(one))) {
      waits.push(limiter.wait(key, '1/30ms', 30_000, { flow, ...turn }).then(() => served.push(flow)));
      await waiting(admin, waits.length);
    }
    const last = limiter.hold(key, '1/30ms', { ttlMs: 9000, waitMs: 30_000, flow: 'c', priority: 5 });
    waits.push(last.then((hold) => served.push('c') && hold.settle()));
    await waiting(admin, waits.length);
    await limiter.resume(key);
    await Promise.all(waits);
    assert.equal(served[0], 'c');
    assert.equal(served.slice(1, 9).filter((flow) => flow === 'b').length, 6, served.join(' '));
    await assert.rejects(limiter.hold(key, 'slots:1', { ttlMs: 9000, flow: 'a' }), /FLOW/, 'without waitMs there is no line');
  }
});

test('a pause that others end is not remembered for long', async (t) => {
  const { port } = await startServer(t);
  const [limiter] = await limiters(t, port, { rememberDenials: 10 });
  const [other] = await limiters(t, port);
  for (const check of [() => limiter.check('k', '1/m'), () => limiter.checkAll([{ key: 'k', rules: '1/m' }])]) {
    await other.check('k', '1/m');
    await other.pause('k', 120_000);
    const asked = performance.now();
    assert.deepEqual([(await check()).source, (await check()).source], ['server', 'denial']);
    await other.resume('k');
    await until(async () => (await check()).source === 'server');
    assert.ok(performance.now() - asked < 100_000, 'long before the pause would have ended');
    await limiter.pause('k', 60_000);
    assert.equal((await limiter.check('k', '5/m')).verdict, 'limited');
    await limiter.resume('k');
    assert.equal((await limiter.check('k', '5/m')).source, 'server', 'the limiter that ends the pause asks at once');
    await limiter.reset('k');
  }
});

test('without the server a process keeps its own pauses', async (t) => {
  const server = await startServer(t);
  const local = plain(connect(t, server.port), { outage: 'local' });
  const others = [undefined, 'allow', 'deny'].map((outage) => plain(connect(t, server.port), outage && { outage }));
  await server.stop();
  const before = await local.hold('k', 'slots:5', { ttlMs: 9000, id: 'before' });
  assert.equal(await local.follow('k', 429, { 'retry-after': '2' }, { [REMAINING]: '5/m' }), 2000);
  const denied = await local.check('k', '5/m');
  assert.deepEqual([denied.verdict, denied.source], ['limited', 'local']);
  assert.ok(denied.waitMs > 0 && denied.waitMs <= 2000);
  assert.ok((await local.checkAll([{ key: 'other', rules: '5/m' }, { key: 'k', rules: '5/m' }])).waitMs > 0);
  const again = await local.hold('k', 'slots:5', { ttlMs: 9000, id: 'before' });
  assert.equal(again.reply.verdict, 'allowed', 'a repeat');
  await again.settle();
  await before.settle();
  await sleep(2100);
  assert.equal((await local.check('k', '5/m')).remaining, 4);
  await local.pause('k', 30_000);
  assert.ok((await local.pause('k', 5000)) > 29_000);
  await assert.rejects(local.resume('k'));
  assert.equal((await local.check('k', '1/s')).verdict, 'allowed');
  await local.pause('k', 30_000);
  await assert.rejects(local.hold('k', '1/s', { ttlMs: 9000 }), (error) => error instanceof Denied && error.reply.waitMs > 29_000);
  for (const limiter of others) {
    for (const send of [() => limiter.pause('k', 1000), () => limiter.resume('k'), () => limiter.sync('k', 1, '5/m')]) await assert.rejects(send());
    assert.equal(await limiter.follow('k', 429, { 'retry-after': '30', [REMAINING]: '1' }, { [REMAINING]: '5/m' }), 0);
  }
});
