// BullMQ on a server with the module.

import { Queue, Worker } from 'bullmq';
import { limited } from 'redis-ratelimit/bullmq';

import { ioredis } from './limiters.js';
import { connect, startServer } from './servers.js';

/** Options of limiters that say nothing when their server ends with the test. */
export const QUIET = { onOutage: () => {} };

/** A server, a queue, and a function that starts a worker with a limiter of its own. */
export async function start(t) {
  const open = [];
  t.after(() => Promise.all(open.map((one) => one.close(true)))); // before the server ends
  const { port } = await startServer(t);
  const connection = { host: '127.0.0.1', port };
  const queue = new Queue('jobs', { connection });
  open.push(queue);
  const limiter = ioredis(connect(t, port), QUIET);
  const work = (processor, options, how) => {
    const worker = new Worker('jobs', limited(processor, { limiter: ioredis(connect(t, port), QUIET), ...options }), { connection, ...how });
    worker.on('error', () => {});
    open.push(worker);
    return worker;
  };
  const free = async () => (await limiter.peek('k', 'slots:1')).remaining;
  return { port, connection, queue, limiter, work, free };
}
