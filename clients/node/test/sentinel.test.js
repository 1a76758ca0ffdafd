// Limiters on clients that ask a sentinel for the primary.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { Redis } from 'ioredis';
import { Redis as Iovalkey } from 'iovalkey';
import { ioredis } from 'redis-ratelimit/ioredis';
import { iovalkey } from 'redis-ratelimit/iovalkey';

import { failOver, GROUP, startWatched } from './support/sentinel.js';
import { connect, until } from './support/servers.js';

const LIBRARIES = { ioredis: [ioredis, Redis], iovalkey: [iovalkey, Iovalkey] };

describe('sentinel', { concurrency: true }, () => {
  for (const how of ['stop', 'pause']) {
    test(`the new primary goes on with the counts of the old one (${how})`, async (t) => {
      const { primary, replica, sentinel } = await startWatched(t);
      const sentinels = [{ host: '127.0.0.1', port: sentinel.port }];
      const limiters = Object.entries(LIBRARIES).map(([through, [make, Client]]) => {
        const client = new Client({ sentinels, name: GROUP, disconnectTimeout: 0 });
        client.on('error', () => {}); // each command reports it
        t.after(() => client.disconnect());
        return [through, make(client, { outage: 'allow', timeoutMs: 1000, onOutage: () => {} })];
      });
      const eachDoes = (does) => Promise.all(limiters.map(([through, limiter]) => does(limiter, through)));
      const serves = (limiter) => until(async () => (await limiter.check('other', '1000/h')).source === 'server');
      await eachDoes(serves);
      await eachDoes(async (limiter, key) => assert.equal((await limiter.check(key, '9/h')).remaining, 8, key));
      const copy = connect(t, replica.port);
      await until(async () => (await eachDoes((_, key) => copy.call('RL.PEEK', key, '9/h'))).every(([, , left]) => left === 8));
      await primary[how]();
      await eachDoes(async (limiter, key) => assert.equal((await limiter.check(`${key}:away`, '9/h')).source, 'outage', key));
      await failOver(t, sentinel);
      await eachDoes(serves);
      await eachDoes(async (limiter, key) => {
        const { source, remaining } = await limiter.peek(key, '9/h');
        assert.deepEqual([source, remaining], ['server', 8], key);
        assert.equal((await limiter.wait(key, '9/h', 1000)).remaining, 7, key);
      });
    });
  }
});
