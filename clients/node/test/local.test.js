// The limiter that stands in for a server, at given times.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';

import { LocalLimiter } from '../dist/local.js';
import { shorten } from '../dist/replies.js';

const { cases } = JSON.parse(await readFile(resolve(import.meta.dirname, '../../cases/local.json'), 'utf8'));

function answer(local, { at_ms: now, check, peek, cost, hold, settle, renew, id, ttl_ms: ttlMs, refund }) {
  if (settle) return local.settle(now, settle, id, { cost, refund });
  if (renew) return local.renew(now, renew, id, ttlMs);
  const limits = Object.entries(check ?? peek).map(([key, rules]) => ({ key, rules }));
  const held = hold && { id: hold.id, ttlMs: hold.ttl_ms };
  const { verdict, waitMs, granted = null, rules } = local.decide(now, limits, { cost, hold: held }, peek !== undefined);
  return [verdict === 'allowed', waitMs, granted, rules.map((rule) => [rule.denies, rule.remaining, rule.waitMs, rule.nextMs, rule.resetMs])];
}

for (const { about, calls } of cases) {
  test(`limiters in processes answer alike in all languages: ${about}`, () => {
    const local = new LocalLimiter();
    for (const call of calls) assert.deepEqual(answer(local, call), call.is, JSON.stringify(call));
  });
}

/** The verdicts and waits of one key's checks at these times. */
function decisions(rules, times, { options, processes } = {}) {
  const limiter = new LocalLimiter({ processes });
  return times.map((now) => {
    const { verdict, waitMs } = limiter.decide(now, [{ key: 'k', rules }], options);
    return verdict === 'allowed' ? 'passes' : waitMs;
  });
}

test('the local limiter counts in windows, buckets and slots', () => {
  assert.deepEqual(decisions('2/s', [0, 400, 500, 999, 1000]), ['passes', 'passes', 500, 1, 'passes']);
  assert.deepEqual(decisions('bucket:2/s,burst=3', [0, 0, 0, 0, 499, 500, 500]), ['passes', 'passes', 'passes', 500, 1, 'passes', 500]);
  assert.deepEqual(decisions('leaky:10/s', [0, 0, 100]), ['passes', 100, 'passes']);
  assert.deepEqual(decisions('leaky:10/s', [0, 200], { options: { cost: 3 } }), ['passes', 100]);
  assert.deepEqual(decisions(['5/s', '1/m'], [0, 1]), ['passes', 59_999]);
  assert.deepEqual(decisions('0/s', [0]), [-1]);
  assert.deepEqual(decisions('1/s,shadow', [0, 0]), ['passes', 'passes']);
  assert.deepEqual(decisions('@unknown', [0, 0]), ['passes', 'passes']);
  assert.deepEqual(decisions('8/s', [0, 0, 0], { processes: 4 }), ['passes', 'passes', 1000]);
  assert.deepEqual(decisions('2/s', [0, 0], { processes: 4 }), ['passes', 1000], 'at least 1 unit');
  assert.deepEqual(decisions('5/s,name=a', [0, 0], { options: { cost: { a: 3 } } }), ['passes', 1000]);
  assert.deepEqual(decisions('5/s,cost=5', [0, 0]), ['passes', 1000]);
  assert.throws(() => decisions('5/x', [0]), /'5\/x' cannot be read/);
});

test('a limiter in a process consumes from all keys or from none', () => {
  const limiter = new LocalLimiter({ policies: { free: ['1/m'] } });
  const both = [{ key: 'a', rules: '9/m' }, { key: 'b', rules: '@free' }];
  assert.equal(limiter.decide(0, both).verdict, 'allowed');
  const denied = limiter.decide(1, both);
  assert.deepEqual([denied.verdict, denied.waitMs, denied.source], ['limited', 59_999, 'local']);
  assert.deepEqual(denied.rules.map(({ key, remaining }) => [key, remaining]), [['a', 8], ['b', 0]]);
  assert.equal(limiter.decide(1, both.slice(0, 1), {}, true).rules[0].remaining, 8, 'a peek consumes nothing');
});

test('refunding a hold of the local limiter gives its charge back, but none of another window', () => {
  for (const rule of ['5/m', 'bucket:5/m', 'leaky:5/m']) {
    const limiter = new LocalLimiter();
    const decide = (now, id) => limiter.decide(now, [{ key: 'k', rules: rule }], id && { hold: { id, ttlMs: 3_600_000 } });
    const remaining = (now) => limiter.decide(now, [{ key: 'k', rules: rule }], {}, true).rules[0].remaining;
    decide(0, 'a');
    const before = remaining(0);
    assert.equal(limiter.settle(0, 'k', 'a', { refund: true }), true);
    assert.equal(remaining(0), before + 1, rule);
    assert.equal(limiter.settle(0, 'k', 'a', { refund: true }), false, 'a hold ends once');
    decide(0, 'slow');
    for (let i = 0; i < 5; i++) decide(60_000 * 5);
    assert.equal(limiter.settle(60_000 * 5, 'k', 'slow', { refund: true }), true);
    assert.equal(remaining(60_000 * 5), 0, `${rule}: the new window got a unit back`);
  }
});

test('settling a hold of the local limiter corrects its charge', () => {
  const limiter = new LocalLimiter();
  const rules = ['50/h,cost=1', 'bucket:50/h,name=in', '50/2h,name=out', 'slots:50'];
  const left = () => limiter.decide(0, [{ key: 'k', rules }], {}, true).rules.map(({ remaining }) => remaining);
  const spend = (cost, real) => {
    limiter.decide(0, [{ key: 'k', rules }], { cost, hold: { id: 'a', ttlMs: 1000 } });
    return limiter.settle(0, 'k', 'a', real);
  };
  assert.equal(spend(9, { cost: 2 }), true);
  assert.deepEqual(left(), [49, 48, 48, 50], 'units come back');
  spend(1, { cost: 5 });
  assert.deepEqual(left(), [48, 43, 43, 50], 'more is charged');
  spend({ in: 10, out: 20 }, { cost: { in: 3, out: 23 } });
  assert.deepEqual(left(), [47, 40, 20, 50], 'costs by name');
  spend({ in: 10 }, {});
  assert.deepEqual(left(), [46, 30, 19, 50], 'charges stand');
  spend({ in: 9, out: 8 }, { cost: { in: 4 } });
  assert.deepEqual(left(), [45, 26, 11, 50], 'the charges of other rules stand');
  spend({ in: 9, '': 5 }, { cost: { in: 1, '': 2 } });
  assert.deepEqual(left(), [44, 25, 9, 50], 'all others');

  const slow = (now, options) => limiter.decide(now, [{ key: 'slow', rules: '9/m' }], options, !options).rules[0].remaining;
  slow(0, { cost: 3, hold: { id: 'a', ttlMs: 3_600_000 } });
  slow(60_000, { cost: 1 });
  limiter.settle(60_000, 'slow', 'a', { cost: 5 });
  assert.equal(slow(60_000), 6, 'more is charged to the new window');
});

test('a cost by name comes before that of the text, and that of the text before that of all others', () => {
  const rules = ['90/h,cost=1,name=requests', '90/h,cost=4,name=pages', '90/h,name=in', '90/h,name=out', 'bucket:90/h'];
  const { rules: found } = new LocalLimiter().decide(0, [{ key: 'k', rules }], { cost: { requests: 2, in: 30, '': 3 } });
  assert.deepEqual(found.map(({ cost }) => cost), [2, 4, 30, 3, 3]);
});

test('a hold of the local limiter that ends by its time gives its charge back if it was taken so', () => {
  for (const refund of [true, false]) {
    const limiter = new LocalLimiter();
    const limits = [{ key: 'k', rules: ['5/h', 'bucket:5/h'] }];
    limiter.decide(0, limits, { cost: 4, hold: { id: 'a', ttlMs: 30, refund } });
    assert.equal(limiter.renew(30, 'k', 'a', 30), false, 'a hold that has ended cannot be renewed');
    assert.deepEqual(limiter.decide(30, limits, {}, true).rules.map(({ remaining }) => remaining), refund ? [5, 5] : [1, 1]);
    assert.equal(limiter.settle(30, 'k', 'a'), false);
  }
});

test('a report of the local limiter on several keys has the key that decides, or the first', () => {
  const limiter = new LocalLimiter();
  const limits = [{ key: 'a', rules: '9/m' }, { key: 'b', rules: ['1/m', '1/m,name=trial,shadow'] }, { key: 'c', rules: '1/h' }];
  const key = (...chosen) => limiter.decide(0, chosen).key;
  assert.deepEqual([key(...limits), key(...limits), key(...limits.slice(0, 2)), key(limits[0])], ['a', 'c', 'b', undefined]);
  limiter.pause(0, 'd', 1000);
  assert.equal(key(limits[0], { key: 'd', rules: '9/m' }), 'a');
});

test('the local limiter grants ranges, and holds slots', () => {
  const limiter = new LocalLimiter();
  const grant = (cost) => shorten(limiter.decide(0, [{ key: 'k', rules: '10/m' }], { cost }));
  assert.deepEqual([grant([1, 8]).granted, grant([1, 8]).granted, grant([1, 8]).granted], [8, 2, 0]);
  const take = (now, id) => limiter.decide(now, [{ key: 'jobs', rules: 'slots:1' }], { hold: { id, ttlMs: 30 } });
  assert.equal(take(0, 'a').verdict, 'allowed');
  assert.equal(take(10, 'b').waitMs, 20);
  assert.equal(take(10, 'a').verdict, 'allowed', 'a live hold takes no second slot');
  assert.deepEqual([limiter.renew(20, 'jobs', 'a', 30), limiter.renew(20, 'jobs', 'b', 30)], [true, false]);
  assert.equal(take(40, 'b').waitMs, 10);
  assert.deepEqual([limiter.settle(40, 'jobs', 'a'), limiter.settle(40, 'jobs', 'a')], [true, false]);
  assert.equal(take(40, 'b').verdict, 'allowed');
  assert.equal(take(70, 'c').verdict, 'allowed', 'a hold ends');
});

test('a range under a leaky rule is granted at least its least', () => {
  assert.equal(new LocalLimiter().decide(0, [{ key: 'k', rules: 'leaky:2/s' }], { cost: [2, 5] }).granted, 2);
});

test('an excess on trial fills a bucket no further than its burst', () => {
  const [limiter, limits] = [new LocalLimiter(), [{ key: 'k', rules: 'bucket:2/s,burst=3,shadow' }]];
  limiter.decide(0, limits, { hold: { id: 'a', ttlMs: 1000 } });
  assert.equal(limiter.settle(0, 'k', 'a', { cost: 50 }), true);
  assert.equal(limiter.decide(0, limits, {}, true).rules[0].resetMs, 1500);
});

test('peeks and denials change nothing', () => {
  const limiter = new LocalLimiter();
  const ask = (now, rules, peek) => limiter.decide(now, [{ key: 'k', rules }], {}, peek).verdict;
  assert.equal(ask(0, 'fixed:1/h,name=x'), 'allowed');
  ask(2000, 'fixed:5/s,name=x', true);
  assert.equal(ask(3000, 'fixed:1/h,name=x'), 'limited');
  assert.equal(ask(3000, '@constructor'), 'allowed', 'no policy');
  for (const text of ['5/0s', '5/m,cost=', 'bucket:5/m,burst=x']) assert.throws(() => ask(0, text), SyntaxError, text);
});

test('what rounding leaves denies nobody', () => {
  assert.deepEqual(decisions('bucket:7/s', [0, 333, 1000], { options: { cost: 7 } }), ['passes', 667, 'passes']);
});

test('the holds of a key are bounded', () => {
  const limiter = new LocalLimiter();
  const take = (id) => limiter.decide(0, [{ key: 'k', rules: '20000/m' }], { hold: { id, ttlMs: 1000 } });
  for (let i = 0; i < 10_000; i++) assert.equal(take(`${i}`).verdict, 'allowed');
  assert.throws(() => take('one more'), /too many holds of a key, expected at most 10000/);
  assert.equal(take('0').rules[0].remaining, 10_000, 'nothing is consumed');
});

test('the local limiter forgets the keys that were used least lately', () => {
  const limiter = new LocalLimiter();
  const passes = (key) => limiter.decide(0, [{ key, rules: '1/m' }]).verdict === 'allowed';
  for (let i = 0; i < 10_000; i++) assert.ok(passes(`${i}`));
  limiter.decide(0, [{ key: 'peeked', rules: '1/m' }], {}, true);
  assert.equal(passes('0'), false, 'a peek keeps no key');
  assert.ok(passes('new'));
  assert.equal(passes('0'), false);
  assert.ok(passes('1'), 'the key was the oldest');
});
