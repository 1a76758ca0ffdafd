// How soon the server decides again, whatever the client library does about its lost connection.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Redis } from 'ioredis';
import { Redis as Iovalkey } from 'iovalkey';
import { createClient } from 'redis';
import { ioredis } from 'redis-ratelimit/ioredis';
import { iovalkey } from 'redis-ratelimit/iovalkey';
import { nodeRedis } from 'redis-ratelimit/node-redis';

import { connect, startServer, until } from './support/servers.js';

/** Clients as an application makes them, whose pauses grow to seconds. */
const CLIENTS = {
  ioredis: async (port) => io(ioredis, new Redis(port)),
  iovalkey: async (port) => io(iovalkey, new Iovalkey(port)),
  'node-redis': async (port) => {
    const client = createClient({ url: `redis://127.0.0.1:${port}` });
    client.on('error', () => {});
    await client.connect();
    return { limiterOf: (options) => nodeRedis(client, options), ready: () => client.isReady, close: () => client.destroy() };
  },
};

function io(make, client) {
  client.on('error', () => {});
  return { limiterOf: (options) => make(client, options), ready: () => client.status === 'ready', close: () => client.disconnect() };
}

for (const [through, clientOf] of Object.entries(CLIENTS)) {
  test(`the server decides again soon after it is back (${through})`, async (t) => {
    const server = await startServer(t);
    const { limiterOf, ready, close } = await clientOf(server.port);
    t.after(close);
    const limiter = limiterOf({ outage: 'local', onOutage: () => {} });
    const check = async () => (await limiter.check('k', '100000/h')).source;
    assert.equal(await check(), 'server');
    await server.stop();
    const waits = [];
    for (const downMs of [3000, 6000]) {
      const downUntil = performance.now() + downMs;
      while (performance.now() < downUntil) {
        assert.equal(await check(), 'local');
        await sleep(20);
      }
      const again = await startServer(t, undefined, [], 'PONG', { port: server.port });
      const back = performance.now();
      await until(async () => (await check()) === 'server');
      waits.push(performance.now() - back);
      for (let i = 0; i < 20; i++) assert.equal(await check(), 'server', 'while the client still waits');
      await until(ready);
      for (let i = 0; i < 20; i++) assert.equal(await check(), 'server', 'by the client again');
      const admin = connect(t, server.port);
      // The limiter's connection does not stay: there is the client's, and this one.
      await until(async () => (await admin.info('clients')).includes('connected_clients:2'));
      admin.disconnect();
      await again.stop();
    }
    t.diagnostic(`ms until the server decided again: ${waits.map(Math.round)}`);
    assert.ok(waits.every((ms) => ms < 1500), `${waits} ms`); // 1,100 and a margin for a busy machine
  });

  test(`what is under way is answered when the third failure opens the breaker (${through})`, async (t) => {
    const server = await startServer(t);
    const { limiterOf, close } = await clientOf(server.port);
    t.after(close);
    const limiter = limiterOf({ outage: 'allow', timeoutMs: 3000, onOutage: () => {} });
    await limiter.check('k', '9/h');
    server.pause();
    const first = Array.from({ length: 3 }, () => limiter.check('k', '9/h'));
    await sleep(1000);
    const asked = performance.now();
    const later = Array.from({ length: 14 }, () => limiter.check('k', '9/h'));
    const replies = await Promise.all([...first, ...later]);
    assert.ok(replies.every(({ source }) => source === 'outage'));
    assert.ok(performance.now() - asked < 2900, 'each waited for its own time-out');
    assert.equal(limiter.away, true);
  });

  test(`a limiter opens no connection for a client that was closed (${through})`, async (t) => {
    const server = await startServer(t);
    const { limiterOf, close } = await clientOf(server.port);
    const limiter = limiterOf({ outage: 'allow', onOutage: () => {} });
    await limiter.check('k', '9/h');
    close();
    for (let i = 0; i < 3; i++) assert.equal((await limiter.check('k', '9/h')).source, 'outage');
    await sleep(1100);
    assert.equal((await limiter.check('k', '9/h')).source, 'outage');
  });
}
