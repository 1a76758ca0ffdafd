// examples/express, as its clients and a real browser see it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';

import { run } from './support/consumer.js';
import { connect, LONG, startServer } from './support/servers.js';

const ROOT = resolve(import.meta.dirname, '../../..');

/** Starts the application beside a server. */
async function start(t) {
  const server = await startServer(t);
  const env = { ...process.env, PORT: '0', REDIS_URL: `redis://127.0.0.1:${server.port}` };
  const app = spawn(process.execPath, [resolve(ROOT, 'examples/express/app.js')], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(app, 'exit');
  let errors = '';
  app.stderr.on('data', (text) => (errors += text));
  t.after(async () => {
    app.kill();
    await ended;
  });
  const [url] = await Promise.race([once(createInterface(app.stdout), 'line'), once(app, 'close').then(() => [])]);
  assert.ok(url, `the application ended (missing packages: scripts/fetch.py clients-node):\n${errors}`);
  const send = (method, path, headers) => fetch(new URL(path, url), { method, headers: { connection: 'close', ...headers } });
  return { ...server, url, send };
}

/** What a browser sees; `steps` as tests/browser/visit.py takes them. */
function visit(url, ...steps) {
  return run('python3', ['-B', resolve(ROOT, 'tests/browser/visit.py'), url, ...steps.flat()]);
}

test('clients are limited by address and by user, and told so', async (t) => {
  const { port, send } = await start(t);
  const ann = { authorization: 'Bearer token-of-ann' };
  const from = (address) => ({ 'x-forwarded-for': address });

  const first = await send('POST', '/ask', ann);
  assert.deepEqual([first.status, await first.text()], [200, '42']);
  assert.equal(first.headers.get('ratelimit-policy'), '"address";q=20;w=60, "user";q=5;w=60');
  assert.equal(first.headers.get('ratelimit'), '"address";r=19;t=60, "user";r=4;t=60');
  for (let i = 0; i < 4; i++) await send('POST', '/ask', { ...ann, ...from('203.0.113.9') });
  const denied = await send('POST', '/ask', { ...ann, ...from('198.51.100.7') });
  assert.equal(denied.status, 429, 'another address is no way around the limit of a user');
  assert.ok(denied.headers.get('retry-after') <= 60);

  const quota = async (headers) => (await send('GET', '/quota', headers)).json();
  assert.deepEqual(await quota(ann), [{ name: 'address', remaining: 19, limit: 20 }, { name: 'user', remaining: 0, limit: 5 }]);
  assert.deepEqual(await quota(from('198.51.100.7')), [{ name: 'address', remaining: 20, limit: 20 }]);

  await send('POST', '/ask', from('2001:db8::1'));
  assert.equal((await quota(from('2001:db8::2')))[0].remaining, 19, 'a network of IPv6 is one client');

  await connect(t, port).call('RL.BLOCK', 'web:ip:198.51.100.7');
  assert.equal((await send('POST', '/ask', from('198.51.100.7'))).status, 403);
});

test('a browser shows what is left, and when more comes', LONG, async (t) => {
  const { port, url } = await start(t);
  const ask = ['click', '#ask'];
  const shows = (name, quota) => ['see', `#${name} td:nth-child(2)`, quota];
  await visit(
    url,
    ['see', 'h1', 'Your quota'],
    shows('address', '20 of 20'),
    [...ask, 'see', '#answer', 'The answer is 42.', ...shows('address', '19 of 20')],
    ['fill', '#token', 'token-of-ann', ...ask, ...shows('user', '4 of 5'), ...shows('address', '18 of 20')],
    ...[3, 2, 1, 0].map((left) => [...ask, ...shows('user', `${left} of 5`)]),
    [...ask, 'match', '#answer', '^Too many requests, ask again in \\d+ s\\.$'],
    [...shows('user', '0 of 5'), ...shows('address', '14 of 20')], // the denial took nothing
  );
  await connect(t, port).call('RL.BLOCK', 'web:user:ann', 'EX', 1000);
  await visit(url, ['fill', '#token', 'token-of-ann', ...ask, 'match', '#answer', '^Forbidden, ask again in \\d+ s\\.$']);
});

test('the page works while the server is down', LONG, async (t) => {
  const { url, stop } = await start(t);
  await stop();
  await visit(url, ['click', '#ask', 'see', '#answer', 'The answer is 42.', 'see', '#address td:nth-child(2)', '19 of 20']);
});
