// How soon the server decides again, whatever the client library does about its lost connection.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';
import { Redis as Iovalkey } from 'iovalkey';
import { createClient } from 'redis';
import { ioredis } from 'redis-ratelimit/ioredis';
import { iovalkey } from 'redis-ratelimit/iovalkey';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { connect, startServer, until } from './support/servers.js';

/** Clients that pause before they connect again. */
const CLIENTS = {
  ioredis: async (port, pauseMs = 2000) => io(ioredis, new Redis(port, { retryStrategy: () => pauseMs })),
  iovalkey: async (port, pauseMs = 2000) => io(iovalkey, new Iovalkey(port, { retryStrategy: () => pauseMs })),
  'node-redis': async (port, pauseMs = 2000) => {
    const client = createClient({ url: `redis://127.0.0.1:${port}`, socket: { reconnectStrategy: pauseMs } });
    client.on('error', () => {});
    await client.connect();
    return { limiterOf: (options) => nodeRedis(client, options), ready: () => client.isReady, close: () => client.destroy() };
  },
};

function io(make, client) {
  client.on('error', () => {});
  return { limiterOf: (options) => make(client, options), ready: () => client.status === 'ready', close: () => client.disconnect() };
}

describe('recovery', { concurrency: true }, () => {
  for (const [through, clientOf] of Object.entries(CLIENTS)) {
    test(`the server decides again soon after it is back, before the client reconnects (${through})`, async (t) => {
      const server = await startServer(t);
      const { limiterOf, ready, close } = await clientOf(server.port, 10_000);
      t.after(close);
      const limiter = limiterOf({ outage: 'local', onOutage: () => {} });
      const check = async () => (await limiter.check('k', '100000/h')).source;
      await until(async () => (await check()) === 'server');
      await server.stop();
      for (let i = 0; i < 20; i++) assert.equal(await check(), 'local');
      await startServer(t, undefined, [], 'PONG', { port: server.port });
      const back = performance.now();
      await until(async () => (await check()) === 'server');
      t.diagnostic(`the server decided again after ${Math.round(performance.now() - back)} ms`);
      for (let i = 0; i < 20; i++) assert.equal(await check(), 'server');
      assert.equal(ready(), false);
      await until(ready);
      for (let i = 0; i < 20; i++) assert.equal(await check(), 'server', 'by the client again');
      const admin = connect(t, server.port);
      // The limiter's connection does not stay: only the client's and this one are left.
      await until(async () => (await admin.info('clients')).includes('connected_clients:2'));
    });

    test(`commands under way end when the third failure opens the breaker (${through})`, async (t) => {
      const server = await startServer(t);
      const { limiterOf, close } = await clientOf(server.port);
      t.after(close);
      const limiter = limiterOf({ outage: 'allow', timeoutMs: 3000, onOutage: () => {} });
      await limiter.check('k', '9/h');
      server.pause();
      const first = Array.from({ length: 3 }, () => limiter.check('k', '9/h'));
      await sleep(1000);
      const later = Array.from({ length: 14 }, () => limiter.check('k', '9/h'));
      await Promise.all(first);
      const opened = performance.now();
      const replies = await Promise.all([...first, ...later]);
      assert.ok(performance.now() - opened < 500, 'each waited for its own time-out');
      assert.ok(replies.every(({ source }) => source === 'outage'));
      assert.equal(limiter.away, true);
    });

    test(`a limiter opens no connection for a client that was closed (${through})`, async (t) => {
      const server = await startServer(t);
      const { limiterOf, close } = await clientOf(server.port);
      const limiter = limiterOf({ outage: 'allow', timeoutMs: 2000, onOutage: () => {} });
      assert.equal((await limiter.check('k', '9/h')).source, 'server');
      close();
      for (let i = 0; i < 3; i++) assert.equal((await limiter.check('k', '9/h')).source, 'outage');
      await sleep(1100);
      assert.equal((await limiter.check('k', '9/h')).source, 'outage');
    });
  }
});
