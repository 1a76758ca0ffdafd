// The breaker and the remembered denials, with times as arguments and without a server.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';

import { Breaker } from '../dist/breaker.js';
import { asked, denialsOfChecks, denialsOfReports, lasts } from '../dist/denials.js';
import { kindOf } from '../dist/outage.js';
import { readRule } from '../dist/rule.js';

const { cases } = JSON.parse(await readFile(resolve(import.meta.dirname, '../../cases/breaker.json'), 'utf8'));

for (const { about, calls } of cases) {
  test(`limiters stop asking alike in all languages: ${about}`, () => {
    const breaker = new Breaker();
    const error = new Error('down');
    for (const { at_ms: now, asks, failed, served } of calls) {
      if (asks !== undefined) assert.equal(breaker.asks(now), asks, `${now}`);
      const was = breaker.open;
      if (failed !== undefined) {
        assert.equal(breaker.failed(now, error), failed && !was);
        assert.deepEqual([breaker.open, breaker.error], [failed, error], `${now}`);
      }
      if (served !== undefined) assert.deepEqual([breaker.succeeded(), breaker.open], [was, served], `${now}`);
    }
  });
}

test('outages, misconfigured servers and wrong requests are distinguished', () => {
  const kinds = {
    outage: ['OOM command not allowed', 'READONLY You can\'t write', 'LOADING Redis is', 'ERR max number of clients reached',
      'ERR internal error, see', 'Connection is closed.', 'connect ECONNREFUSED 127.0.0.1:1', 'CLUSTERDOWN Hash slot', 'Command timed out'],
    misconfigured: ['NOAUTH Authentication', 'WRONGPASS invalid', 'NOPERM this', "ERR unknown command 'RL.CHECK', with", 'ERR unknown command `rl.mcheck`, with'],
    mistake: ['CROSSSLOT Keys', 'WRONGTYPE Operation', "ERR unknown command 'RL.CHEQUE', with", 'ERR rule', 'BUSYKEY Target'],
  };
  for (const [kind, texts] of Object.entries(kinds)) for (const text of texts) assert.equal(kindOf(new Error(text)), kind, text);
  assert.equal(kindOf(new TypeError('undefined is no key')), 'mistake');
  const gaveUp = (reason) => kindOf(new Error('Failed to refresh slots cache.', { cause: new Error(reason) }));
  assert.deepEqual(['WRONGPASS invalid', 'connect ECONNREFUSED', 'MOVED 1 a:1', 'CROSSSLOT Keys'].map(gaveUp), ['misconfigured', 'outage', 'outage', 'mistake']);
});

test('rules are read as the server reads them', () => {
  const periods = { '5/15m': 900_000, 'log:5/s': 1000, '5/2hours': 7_200_000, '5/minute': 60_000, '5/100ms': 100, 'fixed:5/month': 2_678_400_000, '1/w': 604_800_000 };
  for (const [text, periodMs] of Object.entries(periods)) assert.equal(readRule(text, 1).periodMs, periodMs, text);
  for (const text of ['5', 'slots:5/s', '5/', '5/5', 'x:5/s', '5/sx', '']) assert.throws(() => readRule(text, 1), SyntaxError, text);
});

const ask = (key, rules = '5/s', cost = 1) => asked([{ key, rules }], cost);

test('a denial is remembered until its wait is over', () => {
  const denials = denialsOfChecks(2);
  const denied = { verdict: 'limited', limit: 5, remaining: 0, waitMs: 100, resetMs: 500, source: 'server' };
  denials.keep(0, ask('k'), 'k', denied);
  assert.deepEqual({ ...denials.find(30, ask('k')) }, { ...denied, waitMs: 70, resetMs: 470, source: 'denial' });
  assert.deepEqual(denials.find(30, ask('k', ['5/s'])).waitMs, 70);
  for (const other of [ask('k', '6/s'), ask('k', '5/s', 2), ask('l'), ask('k', '5/s', { in: 1 })]) assert.equal(denials.find(30, other), undefined);
  assert.equal(denials.find(100, ask('k')), undefined);

  denials.keep(0, ask('never'), 'never', { ...denied, waitMs: -1 });
  assert.deepEqual([denials.find(999, ask('never')).waitMs, denials.find(1000, ask('never'))], [-1, undefined]);
  denials.keep(0, ask('blocked'), 'blocked', { ...denied, verdict: 'blocked', waitMs: 60_000 });
  assert.deepEqual([denials.find(999, ask('blocked')).waitMs, denials.find(1000, ask('blocked'))], [59_001, undefined]);

  for (const key of ['a', 'b', 'c']) denials.keep(0, ask(key), key, denied);
  assert.deepEqual(['a', 'b', 'c'].map((key) => denials.find(1, ask(key)) !== undefined), [false, true, true]);
  denials.forget('c');
  assert.equal(denials.find(1, ask('c')), undefined);
  assert.deepEqual(['5/s', 'slots:5', '5/s,count=all', '5/s,ban=1m', '@free', '5/s,name=a'].map((rule) => lasts([rule])), [true, false, false, false, false, true]);
});

test('one key has a denial for each cost and each list of rules', () => {
  const denials = denialsOfChecks(4);
  const denied = { verdict: 'limited', limit: 5, remaining: 0, waitMs: 100, resetMs: 500, granted: 0, source: 'server' };
  const asks = [ask('k'), ask('k', ['5/s', '9/m']), ask('k', '5/s', { in: 2, out: 3 }), ask('k', '5/s', [2, 9])];
  const known = () => asks.filter((what) => denials.find(1, what)?.granted === 0).length;
  for (const what of asks) for (let i = 0; i < 2; i++) denials.keep(0, what, 'k', denied);
  assert.equal(known(), 4);
  denials.keep(0, ask('l'), 'l', denied);
  assert.equal(known(), 3, 'the oldest is forgotten');
  denials.forget('k');
  assert.deepEqual([known(), denials.find(1, ask('l')) !== undefined], [0, true]);
  assert.notEqual(ask('k 3', '5/s'), ask('k', '3 5/s'));
});

test('a report of a denial counts down in all its rules', () => {
  const denials = denialsOfReports(9);
  const limits = [{ key: 'a', rules: '5/s' }, { key: 'b', rules: ['1/s'] }];
  const rule = { waitMs: 100, nextMs: 0, resetMs: -1 };
  denials.keep(0, asked(limits, 1), 'b', { verdict: 'limited', waitMs: 100, rules: [rule], source: 'server' });
  const found = denials.find(40, asked([{ key: 'a', rules: ['5/s'] }, { key: 'b', rules: '1/s' }], 1));
  assert.deepEqual(found, { verdict: 'limited', waitMs: 60, rules: [{ waitMs: 60, nextMs: 0, resetMs: -1 }], source: 'denial' });
  assert.equal(denials.find(40, asked(limits.slice(1), 1)), undefined);
});
