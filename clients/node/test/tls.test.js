// Connections that TLS protects. Of the servers to test, Debian's Redis 7.0 is the one that is built with it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { Redis as Iovalkey } from 'iovalkey';
import { createClient } from 'redis';

import { ioredis, iovalkey, nodeRedis } from './support/limiters.js';
import { connect, freePort, ROOT, startServer } from './support/servers.js';

const [CERTIFICATE, KEY] = ['cert.pem', 'key.pem'].map((name) => join(ROOT, 'tests/fixtures/tls', name));
const ca = readFileSync(CERTIFICATE);

/** A limiter of each library on a client that connects to this host. */
const LIMITERS = {
  ioredis: (t, { port, host, tls, ...options }) => ioredis(connect(t, port, { host, tls }), options),
  iovalkey: (t, { port, host, tls, ...options }) => iovalkey(connect(t, port, { host, tls }, Iovalkey), options),
  'node-redis': (t, { port, host, tls, ...options }) => {
    const client = createClient({ url: `rediss://${host}:${port}`, socket: { tls: true, ...tls } });
    client.on('error', () => {}); // each command reports it
    t.after(() => client.destroy());
    client.connect().catch(() => {});
    return nodeRedis(client, options);
  },
};

/** Starts a server; replies with a port for TLS, and a client that does not use it. */
async function startEncrypted(t) {
  const port = await freePort();
  const files = ['--tls-cert-file', CERTIFICATE, '--tls-key-file', KEY, '--tls-ca-cert-file', CERTIFICATE];
  const server = await startServer(t, 'redis-7.0', ['--tls-port', port, ...files, '--tls-auth-clients', 'no']);
  return { port, plain: connect(t, server.port) };
}

test('commands are encrypted', async (t) => {
  const { port } = await startEncrypted(t);
  for (const [through, limiterOf] of Object.entries(LIMITERS)) {
    const limiter = limiterOf(t, { port, host: 'localhost', tls: { ca } });
    assert.equal((await limiter.check(through, '3/h')).remaining, 2, through);
    const hold = await limiter.hold(through, '3/h', { ttlMs: 60_000 });
    assert.equal(await hold.settle(), true, through);
    assert.equal((await limiter.wait(through, '3/h', 1000)).remaining, 0, through);
  }
});

test('a certificate that is not trusted is an outage', async (t) => {
  const { port, plain } = await startEncrypted(t);
  // The certificate is for `localhost`, and no authority has signed it.
  const distrusted = [['localhost', {}], ['127.0.0.1', { ca }]];
  const cases = Object.entries(LIMITERS).flatMap((library) => distrusted.map((address) => [...library, ...address]));
  await Promise.all(cases.map(async ([through, limiterOf, host, tls]) => {
    const options = { port, host, tls, timeoutMs: 1000 };
    const limiter = limiterOf(t, { ...options, outage: 'allow', onOutage: () => {} });
    const replies = [await limiter.wait('k', '1/h', 1000)];
    for (let i = 0; i < 4; i++) replies.push(await limiter.check('k', '1/h'));
    assert.deepEqual(replies.map(({ source }) => source), Array(5).fill('outage'), `${through} ${host}`);
    await assert.rejects(limiterOf(t, options).check('k', '1/h'), /certificate|altnames/, `${through} ${host}`);
  }));
  assert.equal(await plain.exists('k'), 0, 'nothing is sent');
});
