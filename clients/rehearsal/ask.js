// Sends 50 checks a second through the Node.js client: `ask.js URL OUTAGE SECONDS`; see rehearse.py.

import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const require = createRequire(fileURLToPath(new URL('../node/package.json', import.meta.url)));
const { Cluster, Redis } = require('ioredis');
const { ioredis } = await import(require.resolve('redis-ratelimit/ioredis'));

const INTERVAL_MS = 20;
const [, , url, outage, seconds] = process.argv;
const { hostname: host, port } = new URL(url);
const redis = url.startsWith('redis+cluster') ? new Cluster([{ host, port: Number(port) }]) : new Redis(Number(port), host);
redis.on('error', () => {});
const limiter = ioredis(redis, { outage });
await limiter.check('rehearsal', 'window:1000000/h');
console.log('ready');
const began = performance.now();

async function ask(atMs) {
  const what = await limiter.check('rehearsal', 'window:1000000/h').then(({ source }) => source, (error) => `error ${error.name}`);
  console.log(JSON.stringify({ at_s: atMs / 1000, took_s: (performance.now() - began - atMs) / 1000, what }));
}

const asking = [];
for (let atMs = 0; atMs < Number(seconds) * 1000; atMs += INTERVAL_MS) {
  await sleep(Math.max(0, began + atMs - performance.now()));
  asking.push(ask(atMs));
}
await Promise.all(asking);
redis.disconnect();
