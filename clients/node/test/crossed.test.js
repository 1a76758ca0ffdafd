// The check that brings consumption over a fraction of the limit.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { test } from 'node:test';

import { readReply } from '../dist/replies.js';

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
