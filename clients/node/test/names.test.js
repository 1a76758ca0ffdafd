// One thing has one name in all languages.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';

import { Hold, Lease, RateLimiter } from 'redis-ratelimit';
import { rateLimit } from 'redis-ratelimit/express';
import { ioredis } from 'redis-ratelimit/ioredis';

const read = (path) => readFile(resolve(import.meta.dirname, path), 'utf8');
const SHARED = JSON.parse(await read('../../conformance/names.json'));
const CLIENT = { options: {}, on() {} };

function named(kind) {
  return SHARED[kind].map((name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())).sort();
}

test('names of options are those of all languages', () => {
  const limiter = ioredis(CLIENT);
  for (const [kind, make] of [
    ['options', (options) => ioredis(CLIENT, options)],
    ['middleware', (options) => rateLimit(limiter, '5/m', options)],
    ['lease', (options) => new Lease(limiter, 'k', '5/m', options)],
  ]) {
    const says = ({ message }) => {
      assert.deepEqual(message.split('expected ')[1].split(', ').sort(), named(kind));
      return true;
    };
    assert.throws(() => make({ another: 1 }), says);
  }
});

test('names of fields are those of all languages', async () => {
  const types = (await read('../dist/replies.d.ts')) + (await read('../dist/notices.d.ts'));
  for (const [kind, type] of [
    ['reply', 'Reply'], ['report', 'Report'], ['rule_report', 'RuleReport'], ['outage_event', 'OutageEvent'], ['misconfigured_event', 'MisconfiguredEvent'], ['decision_event', 'DecisionEvent'],
  ]) {
    const [, body] = new RegExp(`interface ${type} {(.*?)^}`, 'ms').exec(types);
    assert.deepEqual([...body.matchAll(/^ +(\w+)\??:/gm)].map(([, name]) => name).sort(), named(kind), kind);
  }
});

test('names of commands are those of all languages', async () => {
  for (const name of named('commands')) assert.ok(name in RateLimiter.prototype, name);
  const own = await read('../dist/hold.d.ts');
  for (const name of named('hold')) assert.ok(name in Hold.prototype || own.includes(`readonly ${name}:`), name);
});
