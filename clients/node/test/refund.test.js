// A request gets back its own charge, and nothing of another request's.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'node:test';

import express from 'express';
import Fastify from 'fastify';
import { rateLimit } from 'redis-ratelimit/express';
import { rateLimit as fastifyHook } from 'redis-ratelimit/fastify';

import { ioredis } from './support/limiters.js';
import { connect, serve, startServer, until } from './support/servers.js';

async function counted(admin, name) {
  return Number(new RegExp(`${name}:(\\d+)`).exec(await admin.info('ratelimit'))[1]);
}

/** A site with a login that counts wrong passwords. Calling a function in `slow` answers a right password. */
function site(limiter) {
  const app = express();
  const slow = [];
  const limits = (req) => ({ key: `login:${req.params.kind}`, rules: req.get('x-rule') });
  app.get('/:kind/:status', rateLimit(limiter, limits, { count: 'failed' }), (req, res) => {
    if (req.params.status === '200') slow.push(() => res.sendStatus(200));
    else res.sendStatus(401);
  });
  return { app, slow };
}

const PERIOD_MS = 6000;
const KINDS = { log: '5/6s', fixed: 'fixed:5/6s,align=first', window: 'window:5/6s', bucket: 'bucket:5/6s' };

test('slow successful logins across a window boundary allow no further wrong logins', async (t) => {
  const { port } = await startServer(t);
  const admin = connect(t, port);
  const limiter = ioredis(connect(t, port));
  const { app, slow } = site(limiter);
  const get = await serve(t, app);
  const ask = (kind, status) => get(`/${kind}/${status}`, { headers: { 'x-rule': KINDS[kind], connection: 'close' } });
  const kinds = Object.keys(KINDS);
  const successes = kinds.flatMap((kind) => Array.from({ length: 4 }, () => ask(kind, 200)));
  await until(() => slow.length === successes.length);
  // Time has emptied each state again.
  const remaining = (kind) => limiter.peek(`login:${kind}`, KINDS[kind]).then((reply) => reply.remaining);
  await until(async () => (await Promise.all(kinds.map(remaining))).every((left) => left === 5));

  const began = performance.now();
  const passed = Object.fromEntries(kinds.map((kind) => [kind, 0]));
  const wrong = async (kind) => {
    if ((await ask(kind, 401)).status === 401) passed[kind] += 1;
  };
  for (const kind of kinds) for (let i = 0; i < 5; i++) await wrong(kind);
  for (const answer of slow) answer();
  assert.ok((await Promise.all(successes)).every(({ status }) => status === 200));
  await until(async () => (await counted(admin, 'holds_settled')) >= successes.length + 5 * kinds.length);
  for (const kind of kinds) for (let i = 0; i < 4; i++) await wrong(kind);
  // The units that time gives back meanwhile may pass, too.
  const most = 5 + Math.floor(((performance.now() - began) * 5) / PERIOD_MS);
  for (const kind of kinds) assert.ok(passed[kind] <= most, `${kind}: ${passed[kind]} of at most ${most} passed`);
});

test('a key without room for holds keeps the charges of all requests', async (t) => {
  t.mock.method(console, 'warn', () => {});
  const { port } = await startServer(t);
  const admin = connect(t, port);
  await admin.config('SET', 'ratelimit.max-holds', 2);
  const limiter = ioredis(connect(t, port));
  const { app, slow } = site(limiter);
  const get = await serve(t, app);
  const asked = Array.from({ length: 5 }, () => get('/k/200', { headers: { 'x-rule': '9/h', connection: 'close' } }));
  await until(() => slow.length === 5);
  for (const answer of slow) answer();
  assert.ok((await Promise.all(asked)).every(({ status }) => status === 200));
  await until(async () => (await counted(admin, 'holds_settled')) === 2);
  assert.equal((await limiter.peek('login:k', '9/h')).remaining, 6);
  assert.equal(console.warn.mock.callCount(), 1, 'the log has one warning a minute');
});

test('Fastify gives charges back as Express does, and a request whose client leaves before the status has failed', async (t) => {
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port));
  const app = Fastify();
  t.after(() => app.close());
  for (const count of ['failed', 'successful']) {
    app.get(`/${count}/:status`, { onRequest: fastifyHook(limiter, () => ({ key: count, rules: '9/h' }), { count }) }, async (request, reply) => {
      if (request.params.status === 'never') await once(request.raw.socket, 'close');
      if (request.params.status === 'part') return Readable.from(part());
      return reply.code(Number(request.params.status)).send('here');
    });
  }
  const left = async (count) => (await limiter.peek(count, '9/h')).remaining;
  for (const [count, counted, ignored] of [['failed', 404, 200], ['successful', 200, 404]]) {
    await app.inject(`/${count}/${ignored}`);
    await until(async () => (await left(count)) === 9);
    await app.inject(`/${count}/${counted}`);
    assert.equal(await left(count), 8);
  }
  const url = await app.listen({ port: 0, host: '127.0.0.1' });
  const leaving = new AbortController();
  const gone = assert.rejects(fetch(`${url}/successful/never`, { signal: leaving.signal }));
  await until(async () => (await left('successful')) === 7);
  leaving.abort();
  await gone;
  await until(async () => (await left('successful')) === 8);

  const reading = request(`${url}/failed/part`).end();
  const [{ statusCode }] = await once(reading, 'response');
  assert.deepEqual([statusCode, await left('failed')], [200, 7]);
  reading.destroy();
  await until(async () => (await left('failed')) === 8); // the status decides
});

async function* part() {
  yield 'part';
  await new Promise(() => {});
}

test('clients without an address share a key, which is logged once', async (t) => {
  t.mock.method(console, 'warn', () => {});
  const folder = await mkdtemp(join(tmpdir(), 'socket-'));
  t.after(() => rm(folder, { recursive: true }));
  const { port } = await startServer(t);
  const limiter = ioredis(connect(t, port));
  const socketPath = join(folder, 'app.sock');
  const server = express().get('/', rateLimit(limiter, '2/h'), (_req, res) => res.send('here')).listen(socketPath);
  await once(server, 'listening');
  t.after(() => server.close());
  const get = async () => {
    const [answer] = await once(request({ socketPath, path: '/', agent: false }).end(), 'response');
    answer.resume();
    return answer.statusCode;
  };
  assert.deepEqual([await get(), await get(), await get()], [200, 200, 429]);
  assert.equal((await limiter.peek('ip:unknown', '2/h')).remaining, 0);
  assert.deepEqual(console.warn.mock.calls.map(({ arguments: [line] }) => /no address/.test(line)), [true]);
});

test('a key that is given twice is refused, since the hold of its first check would let the second pass', async (t) => {
  const { port } = await startServer(t);
  const limits = [{ key: 'k', rules: '3/m,name=a' }, { key: 'k', rules: '1/h,name=b' }, { key: 'z', rules: '100/m' }];
  for (const separately of [false, true]) {
    await assert.rejects(ioredis(connect(t, port), { separately }).checkAll(limits), /given twice, expected each key once/);
  }
});
