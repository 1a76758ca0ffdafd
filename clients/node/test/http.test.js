import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';

import { fields, network, problem, status } from 'redis-ratelimit';

import { readReport } from '../dist/replies.js';
import { fieldsOf } from '../dist/upstream.js';
import { ioredis } from './support/limiters.js';
import { connect, startServer } from './support/servers.js';

test('the fields are those that docs/guide/http.md describes', async (t) => {
  const { port } = await startServer(t);
  const client = connect(t, port);
  const limiter = ioredis(client);
  const rules = ['2/10s,name=ten', 'window:240/h,name=hour', 'bucket:5/1500ms,burst=9', 'fixed:1000/month'];
  const policy = '"ten";q=2;w=10, "hour";q=240;w=3600, "bucket:5/1500ms,burst=9";q=5, "fixed:1000/1month";q=1000;w=2592000';
  const told = [];
  for (const verdict of ['allowed', 'allowed', 'limited']) {
    const report = await limiter.checkAll([{ key: 'k', rules }]);
    assert.equal(report.verdict, verdict);
    const { RateLimit, 'RateLimit-Policy': found, ...others } = fields(report);
    assert.equal(found.replace(/w=\d{7}$/, 'w=2592000'), policy);
    assert.deepEqual(Object.keys(others), verdict === 'limited' ? ['Retry-After'] : []);
    told.push(RateLimit.split(', ').map((item) => item.replace(/;t=\d+$/, ';t')));
    const seconds = (ms) => (ms > 0 ? String(Math.ceil(ms / 1000)) : undefined);
    const times = report.rules.map(({ denies, waitMs, nextMs }) => seconds(denies ? waitMs : nextMs));
    assert.deepEqual(RateLimit.split(', ').map((item) => /;t=(\d+)/.exec(item)?.[1]), times, 'the time until more is left');
  }
  assert.deepEqual(told[1].slice(0, 2), ['"ten";r=0;t', '"hour";r=238;t']);
  const { RateLimit: bucket } = fields(await limiter.checkAll([{ key: 'bucket', rules: 'bucket:10/100s,name=b' }], { cost: 5 }));
  assert.equal(bucket, '"b";r=5;t=10', 'the next unit, not all of them');
  const { RateLimit: unused } = fields(await limiter.peekAll('unused', '5/m,name=u'));
  assert.equal(unused, '"u";r=5', 'nothing is used');
  const never = await limiter.checkAll([{ key: 'k', rules: '0/m,name=never' }]);
  assert.equal(fields(never).RateLimit, '"never";r=0');
  const taken = await client.call('RL.CHECK', 'jobs', 'HOLD', 'a', 'EX', 30, 'FULL', 'slots:2');
  assert.equal(taken[1], 0);
  const slots = fields(await limiter.peekAll('jobs', 'slots:2'))['RateLimit-Policy'];
  assert.equal(slots, '"slots:2";q=2;qu="concurrent-requests"');
});

test('the fields are those of every language', async () => {
  const { cases } = JSON.parse(await readFile(resolve(import.meta.dirname, '../../cases/fields.json'), 'utf8'));
  for (const { about, reply, ...expected } of cases) {
    for (const [headers, told] of Object.entries(expected)) {
      const found = Object.entries(fields(readReport(reply), headers)).map(([name, text]) => [name.toLowerCase(), text]);
      assert.deepEqual(Object.fromEntries(found), told, `${headers}: ${about}`);
    }
  }
});

test('a refusal names the rules that deny, and no rule on trial', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port));
  const limits = [{ key: 'k', rules: ['1/h,name=hour', '5/d,name=day', '0/m,name=trial,shadow'] }];
  await limiter.checkAll(limits);
  const denied = await limiter.checkAll(limits);
  assert.equal(status(denied), 429);
  assert.deepEqual(problem(denied)['violated-policies'], ['hour']);
  assert.equal(fields(denied)['RateLimit-Policy'], '"hour";q=1;w=3600, "day";q=5;w=86400');
  assert.match(fields(denied)['Retry-After'], /^3(600|5\d\d)$/);
});

test('a blocked key is forbidden, and told to wait only if its block ends', async (t) => {
  const { port } = await startServer(t);
  const client = connect(t, port);
  const limiter = ioredis(client);
  const check = () => limiter.checkAll([{ key: 'k', rules: '9/m' }]);
  await client.call('RL.BLOCK', 'k');
  const forever = await check();
  assert.deepEqual([status(forever), problem(forever).status, fields(forever)['Retry-After']], [403, 403, undefined]);
  await client.call('RL.BLOCK', 'k', 'EX', 100);
  assert.match(fields(await check())['Retry-After'], /^(100|[1-9]\d)$/);
  await client.call('RL.EXEMPT', 'k');
  assert.equal((await check()).verdict, 'allowed');
});

test('an address is counted by its network if it is of IPv6, as in every language', async () => {
  const { cases } = JSON.parse(await readFile(resolve(import.meta.dirname, '../../cases/addresses.json'), 'utf8'));
  for (const { given, prefix, network: counted } of cases) assert.equal(network(given, prefix), counted, `${given}/${prefix}`);
  assert.equal(network(undefined), 'unknown');
  for (const prefix of [-1, 129, 56.5, NaN, '64', null]) assert.throws(() => network('::1', prefix), TypeError, String(prefix));
});

test('headers of any client are read', () => {
  const both = [['ratelimit', '"a";r=9, "b";r=7']];
  const headers = new Headers([['RateLimit', '"a";r=9'], ['ratelimit', '"b";r=7']]);
  for (const given of [headers, { RateLimit: ['"a";r=9', '"b";r=7'] }, new Map([['RateLimit', '"a";r=9'], ['ratelimit', '"b";r=7']]), { forEach: (see) => headers.forEach(see) }]) {
    assert.deepEqual([...fieldsOf(given)], both);
  }
});
