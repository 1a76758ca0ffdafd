// Values are tested before anything is sent or counted: a wrong one is the caller's error, and never an outage.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Lease } from 'redis-ratelimit';
import { ioredis } from 'redis-ratelimit/ioredis';

import { connect, startServer } from './support/servers.js';

const CALLS = {
  'key undefined': (it) => it.check(undefined, '5/m'),
  'key null': (it) => it.peek(null, '5/m'),
  'no key': (it) => it.check('', '5/m'),
  'key NaN': (it) => it.reset(NaN),
  'key of several': (it) => it.checkAll([{ key: 'a', rules: '5/m' }, { key: {}, rules: '5/m' }]),
  'rules null': (it) => it.check('k', null),
  'empty rules': (it) => it.check('k', ''),
  'empty rules of several': (it) => it.checkAll([{ key: 'k', rules: '' }]),
  'cost below 0': (it) => it.check('k', '5/m', { cost: -1000 }),
  'half a cost': (it) => it.check('k', '5/m', { cost: 1.5 }),
  'cost too large': (it) => it.check('k', '5/m', { cost: 1e9 + 1 }),
  'cost NaN': (it) => it.peek('k', '5/m', { cost: NaN }),
  'range from 0': (it) => it.check('k', '5/m', { cost: [0, 5] }),
  'range backwards': (it) => it.check('k', '5/m', { cost: [5, 2] }),
  'half a range': (it) => it.check('k', '5/m', { cost: [5] }),
  'named cost below 0': (it) => it.check('k', '5/m,name=a', { cost: { a: -1 } }),
  'settled below 0': (it) => it.settle('k', 'id', { cost: -5 }),
  'refund below 0': (it) => it.refund('k', -5),
  'wait below 0': (it) => it.wait('k', '5/m', -2),
  'endless wait': (it) => it.wait('k', '5/m', Infinity),
  'held for nothing': (it) => it.hold('k', '5/m', { ttlMs: 0 }),
  'renewed for NaN': (it) => it.renew('k', 'id', NaN),
  'pause below 0': (it) => it.pause('k', -1),
  'plan below 0': (it) => it.plan('k', 'free', -1),
  'remaining below 0': (it) => it.sync('k', -1, '5/m'),
  'lease of -500': (it) => new Lease(it, 'k', '5/m').take(-500),
};

for (const outage of ['raise', 'allow', 'local']) {
  test(`a wrong value is an error of the caller, and no outage: ${outage}`, async (t) => {
    const client = connect(t, (await startServer(t)).port);
    const limiter = ioredis(client, { outage });
    for (const [name, call] of Object.entries(CALLS)) {
      await assert.rejects(async () => call(limiter), { name: 'TypeError', message: /expected/ }, name);
    }
    assert.equal(limiter.outages, 0);
    assert.equal(await client.dbsize(), 0);
  });
}

test('whole numbers are keys as their texts', async (t) => {
  const limiter = ioredis(connect(t, (await startServer(t)).port));
  for (const key of [7, '7']) await limiter.check(key, '9/m');
  assert.equal((await limiter.peek('7', '9/m')).remaining, 7);
});
