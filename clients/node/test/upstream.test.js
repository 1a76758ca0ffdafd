// The headers of an upstream's answer, as clients of HTTP hand them over.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fieldsOf, unitsOf } from '../dist/upstream.js';

test('headers of any client are read', () => {
  const both = [['ratelimit', '"a";r=9, "b";r=7']];
  const headers = new Headers([['RateLimit', '"a";r=9'], ['ratelimit', '"b";r=7']]);
  for (const given of [headers, { RateLimit: ['"a";r=9', '"b";r=7'] }, new Map([['RateLimit', '"a";r=9'], ['ratelimit', '"b";r=7']]), { forEach: (see) => headers.forEach(see) }]) {
    assert.deepEqual([...fieldsOf(given)], both);
  }
  assert.equal(unitsOf(fieldsOf({ a: undefined }).get('a')), undefined);
});
