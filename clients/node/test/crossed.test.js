// The check that brings consumption over a fraction of the limit.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';

import { readReply } from '../dist/replies.js';

import { ioredis } from './support/limiters.js';
import { connect, onEachServer, startServer } from './support/servers.js';

const SHARED = JSON.parse(await readFile(resolve(import.meta.dirname, '../../cases/crossed.json'), 'utf8'));

test('replies tell crossings alike in all languages', () => {
  for (const { reply, fraction, cost, crossed } of SHARED.cases) {
    assert.equal(readReply(reply, reply.length === 6).crossed(fraction, cost ?? undefined), crossed, JSON.stringify([reply, fraction, cost]));
  }
});

test('a wrong fraction is an error', () => {
  for (const reply of [readReply([0, 10, 2, 0, 1000], false), readReply([1, 10, 0, 500, 1000], false)]) {
    for (const wrong of [...SHARED.wrong.map(Number), undefined, '0.8', true]) {
      assert.throws(() => reply.crossed(wrong), /the fraction is .*, expected a number above 0 and at most 1/);
    }
  }
});

onEachServer(test, 'a fixed window is crossed once', async (t, name) => {
  const limiter = ioredis(connect(t, (await startServer(t, name)).port));
  const told = async (key, costs) => {
    const found = [];
    for (const cost of costs) found.push((await limiter.check(key, 'fixed:10/h,align=first', { cost })).crossed(0.8, cost));
    return found;
  };
  const [no, yes] = [false, true];
  assert.deepEqual(await told('ones', Array(11).fill(1)), [no, no, no, no, no, no, no, yes, no, no, no]);
  assert.deepEqual(await told('more', [3, 3, 3, 3, 1]), [no, no, yes, no, no]);
  assert.equal((await limiter.check('ranged', 'fixed:10/h,align=first', { cost: [1, 9] })).crossed(0.8), yes);
});
