// More requests at once than the limiter sends: they wait for a place, and none counts as an outage.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import express from 'express';
import { rateLimit } from 'redis-ratelimit/express';
import { ioredis } from 'redis-ratelimit/ioredis';

import { connect, serve, startServer } from './support/servers.js';

test('a middleware lets exactly the limit of a burst pass', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port), { outage: 'allow', timeoutMs: 5000, queueTimeoutMs: 60_000 });
  const get = await serve(t, express().get('/', rateLimit(limiter, '50/h'), (_req, res) => res.send('here')));
  const statuses = await Promise.all(Array.from({ length: 600 }, async () => (await get('/')).status));
  assert.deepEqual([200, 429].map((wanted) => statuses.filter((status) => status === wanted).length), [50, 550]);
});
