import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { test } from 'node:test';

import { fields, network, problem, status } from 'redis-ratelimit';

import { ioredis } from './support/limiters.js';
import { connect, startServer } from './support/servers.js';

const PYTHON_FIELDS = resolve(import.meta.dirname, '../../../examples/gateway/fields.py');

test('the fields are those that docs/http.md describes', async (t) => {
  const { port } = await startServer(t);
  const client = connect(t, port);
  const limiter = ioredis(client);
  const rules = ['2/10s,name=ten', 'window:240/h,name=hour', 'bucket:5/1500ms,burst=9', 'fixed:1000/month'];
  for (const verdict of ['allowed', 'allowed', 'limited']) {
    const report = await limiter.checkAll([{ key: 'k', rules }]);
    assert.equal(report.verdict, verdict);
    assert.deepEqual(fields(report), await pythonFields(report));
  }
  const never = await limiter.checkAll([{ key: 'k', rules: '0/m,name=never' }]);
  assert.equal(fields(never).RateLimit, '"never";r=0');
  assert.deepEqual(fields(never), await pythonFields(never));
  const taken = await client.call('RL.CHECK', 'jobs', 'HOLD', 'a', 'EX', 30, 'FULL', 'slots:2');
  assert.equal(taken[1], 0);
  const policy = fields(await limiter.peekAll('jobs', 'slots:2'))['RateLimit-Policy'];
  assert.equal(policy, '"slots:2";q=2;qu="concurrent-requests"');
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
  assert.match(fields(denied)['Retry-After'], /^(3600|3599)$/);
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
  assert.match(fields(await check())['Retry-After'], /^(100|99)$/);
  await client.call('RL.EXEMPT', 'k');
  assert.equal((await check()).verdict, 'allowed');
});

test('an address is counted by its network if it is of IPv6', () => {
  const networks = {
    '203.0.113.9': '203.0.113.9',
    '::ffff:203.0.113.9': '203.0.113.9',
    '2001:db8:1:2:3:4:5:6': '2001:db8:1:2::/64',
    '2001:0DB8:0001:0002::9': '2001:db8:1:2::/64',
    '2001:db8::9': '2001:db8:0:0::/64',
    '::1': '0:0:0:0::/64',
    '::': '0:0:0:0::/64',
    'fe80::1%eth0': 'fe80:0:0:0::/64',
    '1:2:3:4:5:6:7::': '1:2:3:4::/64',
    '1.2.3.4:5678': '1.2.3.4',
    '[2001:db8:1:2::9]:80': '2001:db8:1:2::/64',
    '[::1]': '0:0:0:0::/64',
    'no address': 'no address',
    '': 'unknown', // a Unix socket
  };
  for (const [address, counted] of Object.entries(networks)) assert.equal(network(address), counted);
  assert.deepEqual([network(undefined), network(null)], ['unknown', 'unknown']);
  const prefixes = { 48: '2001:db8:1::/48', 56: '2001:db8:1:200::/56', 64: '2001:db8:1:2ff::/64', 128: '2001:db8:1:2ff:0:0:0:9/128' };
  for (const [prefix, counted] of Object.entries(prefixes)) assert.equal(network('2001:db8:1:2ff::9', Number(prefix)), counted);
});

/** What the example in Python makes of the same report, for it documents the fields. */
async function pythonFields(report) {
  const asSent = JSON.stringify({
    verdict: report.verdict === 'allowed' ? 0 : 1,
    wait_ms: report.waitMs,
    rules: report.rules.map((rule) => ({
      rule: rule.rule,
      name: rule.name,
      cost: rule.cost,
      verdict: rule.denies ? 1 : 0,
      limit: rule.limit,
      quota: rule.quota,
      period_ms: rule.periodMs,
      remaining: rule.remaining,
      wait_ms: rule.waitMs,
      next_ms: rule.nextMs,
      reset_ms: rule.resetMs,
      shadow: rule.shadow ? 1 : 0,
    })),
  });
  const python = execFile('python3', ['-B', PYTHON_FIELDS]);
  python.stdin.end(asSent);
  let printed = '';
  python.stdout.on('data', (text) => (printed += text));
  await once(python, 'close');
  return Object.fromEntries(printed.trim().split('\n').map((line) => line.split(/: (.*)/, 2)));
}
