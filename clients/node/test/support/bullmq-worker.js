// A worker of BullMQ in a process of its own. It tells its standard output when its job runs, and the job never ends.

import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { limited } from 'redis-ratelimit/bullmq';
import { ioredis } from 'redis-ratelimit/ioredis';

const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };
const limiter = ioredis(new Redis({ ...connection, lazyConnect: true }), { timeoutMs: 5000 });

function run() {
  console.log('runs');
  return new Promise(() => {});
}

new Worker('jobs', limited(run, { limiter, rules: 'slots:1', key: 'k', ttlMs: 1000 }), { connection, lockDuration: 1000, stalledInterval: 500 });
