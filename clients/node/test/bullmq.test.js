// Limits for jobs, with BullMQ itself on a real server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Worker } from 'bullmq';
import { RateLimiter } from 'redis-ratelimit';
import { limited } from 'redis-ratelimit/bullmq';

import { QUIET, start } from './support/bullmq.js';
import { ioredis } from './support/limiters.js';
import { connect, startServer, until } from './support/servers.js';

/** How often the server has got each command, by its name in lower case. */
async function calls(client) {
  const lines = (await client.info('commandstats')).matchAll(/cmdstat_(\S+?):calls=(\d+)/g);
  return new Map(Array.from(lines, ([, name, n]) => [name.toLowerCase(), Number(n)]));
}

/** What a server gets within some time, but for what the tests themselves send: commands of the module, and all. */
async function within(client, ms) {
  const before = await calls(client);
  await sleep(ms);
  const after = [...(await calls(client))].map(([name, n]) => [name, n - (before.get(name) ?? 0)]).filter(([name, n]) => n > 0 && name !== 'info');
  const sum = (some) => some.reduce((all, [, n]) => all + n, 0);
  return { own: sum(after.filter(([name]) => name.startsWith('rl.'))), all: sum(after) };
}

test('a denied job moves away, for other tenants, and comes back when its wait is over', async (t) => {
  const { queue, work } = await start(t);
  const ran = [];
  work(async (job) => ran.push({ name: job.name, at: Date.now() }), { rules: '2/2s', key: (job) => job.name });
  const began = Date.now(); // before any check
  await queue.addBulk(['a', 'a', 'a', 'a', 'b'].map((name) => ({ name, data: {}, opts: { attempts: 1, priority: 1 } })));
  await until(() => ran.length === 5);
  assert.deepEqual(ran.map(({ name }) => name), ['a', 'a', 'b', 'a', 'a']);
  const waits = ran.slice(3).map(({ at }) => at - began);
  assert.ok(waits.every((ms) => ms >= 2000 && ms < 3500), `${waits}`);
  assert.equal((await queue.getJobCounts()).failed, 0);
});

test('slots are held while jobs run, and are free after each', async (t) => {
  const { queue, work, limiter } = await start(t);
  let [now, most] = [0, 0];
  const run = async ({ data }) => {
    most = Math.max(most, ++now);
    await sleep(20);
    now -= 1;
    if (data.fails) throw new Error('fails');
  };
  work(run, { rules: 'slots:2', key: 'k' }, { concurrency: 10 });
  await queue.addBulk(Array.from({ length: 60 }, (_, n) => ({ name: 'job', data: { fails: n % 10 === 0 } })));
  const began = performance.now();
  await until(async () => (await queue.getCompletedCount()) === 54);
  const took = performance.now() - began;
  await until(async () => (await limiter.peek('k', 'slots:2')).remaining === 2);
  assert.equal(await queue.getFailedCount(), 6);
  assert.equal(most, 2);
  assert.ok(took < 15_000, `${took} ms, although no slot lapses before 30 s`);
});

test("a killed worker's slot is free after its ttl, and its job runs again", async (t) => {
  const { port, queue, work, free } = await start(t);
  const child = spawn(process.execPath, [join(import.meta.dirname, 'support/bullmq-worker.js'), port], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  const { id } = await queue.add('job', {});
  await once(createInterface(child.stdout), 'line');
  await sleep(1500);
  assert.equal(await free(), 0, 'a hold is renewed');
  child.kill('SIGKILL');
  const killed = performance.now();
  await until(async () => (await free()) === 1);
  const ms = performance.now() - killed;
  console.log(`BullMQ, worker killed: its slot (ttl 1000 ms) was free after ${ms.toFixed()} ms`);
  assert.ok(ms < 1500, `${ms}`);
  const again = [];
  work(async (job) => again.push(job.id), { rules: 'slots:1', key: 'k' }, { stalledInterval: 500 });
  await until(async () => (await queue.getCompletedCount()) === 1);
  assert.deepEqual(again, [id]);
});

test('an idle worker sends no more than one without limits', async (t) => {
  const { port, connection, queue, work } = await start(t);
  const client = connect(t, port);
  const how = { drainDelay: 1 };
  const plain = new Worker('jobs', async () => {}, { connection, ...how });
  await plain.waitUntilReady();
  await sleep(500);
  const bare = await within(client, 2000);
  await plain.close(true);
  const ran = [];
  await work(async (job) => ran.push(job), { rules: '1/h', key: 'k' }, how).waitUntilReady();
  await sleep(500);
  const idle = await within(client, 2000);
  console.log(`BullMQ, idle 2 s: ${idle.own} commands of the module, ${idle.all} in all; without limits ${bare.all}`);
  assert.equal(idle.own, 0);
  const poll = 8; // commands, and a busy machine delays some polls
  assert.ok(idle.all <= Math.max(bare.all, 2 * poll) + poll, `${idle.all}, ${bare.all}`);
  await queue.addBulk([{ name: 'job', data: {} }, { name: 'job', data: {} }]);
  await until(async () => (await queue.getDelayedCount()) === 1);
  assert.equal((await within(client, 1000)).own, 0, 'a denied job waits without asking');
});

test('a job waits while the server gives no decision', async (t) => {
  const { queue, work } = await start(t);
  const { port, pause, resume } = await startServer(t);
  pause();
  const limiter = ioredis(connect(t, port), { ...QUIET, timeoutMs: 200 });
  const started = [];
  work(async (job) => started.push(job.attemptsMade), { limiter, rules: '1/s', key: 'k' });
  await queue.add('job', {});
  await until(async () => (await queue.getDelayedCount()) === 1);
  assert.deepEqual(started, []);
  resume();
  await until(() => started.length === 1);
  assert.deepEqual(started, [0]);
});

test('a denied job asks again after an hour at the latest', async (t) => {
  const { queue, work } = await start(t);
  work(async () => {}, { rules: '1/30d', key: 'k' });
  await queue.addBulk([{ name: 'job', data: {} }, { name: 'job', data: {} }]);
  await until(async () => (await queue.getDelayedCount()) === 1);
  const [{ delay }] = await queue.getDelayed();
  assert.ok(delay > 3_590_000 && delay <= 3_600_000, `${delay}`);
});

test('a job that can never run fails', async (t) => {
  const { queue, work } = await start(t);
  work(async () => {}, { rules: '5/m', key: 'k', cost: ({ data }) => data.cost });
  const { id } = await queue.add('job', { cost: 6 });
  await until(async () => (await queue.getFailedCount()) === 1);
  assert.equal((await queue.getJob(id)).failedReason, 'limited');
  await queue.add('job', { cost: 5 });
  await until(async () => (await queue.getCompletedCount()) === 1);
});

test('a job learns that its hold has ended, and that it was cancelled', async (t) => {
  const { queue, work, limiter } = await start(t);
  const signals = [];
  const run = (job, token, signal) => new Promise((_, reject) => signals.push(signal) && signal.addEventListener('abort', () => reject(signal.reason)));
  const worker = work(run, { rules: 'slots:1', key: 'k', ttlMs: 300 });
  const { id } = await queue.add('job', {});
  await until(() => signals.length === 1);
  await limiter.reset('k');
  await until(async () => (await queue.getFailedCount()) === 1);
  assert.match((await queue.getJob(id)).failedReason, /hold '.+' has ended/);
  const second = await queue.add('job', {});
  await until(() => signals.length === 2);
  worker.cancelJob(second.id, 'no longer wanted');
  await until(async () => (await queue.getFailedCount()) === 2);
});

test('weights and other wrong options are refused', () => {
  const right = { limiter: RateLimiter.inProcess(), rules: '5/m', key: 'k' };
  const refuses = (options, message) => assert.throws(() => limited(async () => {}, { ...right, ...options }), { name: 'TypeError', message });
  for (const name of ['flow', 'weight', 'priority']) refuses({ [name]: 2 }, `limited: '${name}' is given, expected none: a delayed job has no place in a line`);
  refuses({ rules: ['5/m', 'leaky:5/m'] }, /'leaky:5\/m', expected others: a job would wait/);
  refuses({ rules: '' }, /the rule is ''/);
  refuses({ limiter: {} }, /limiter is \[object Object\], expected a RateLimiter/);
  refuses({ key: undefined }, /key is undefined, expected a text or a function/);
  refuses({ ttlMs: 0 }, /ttlMs is 0/);
  refuses({ tttl: 5 }, /unknown option 'tttl'/);
});
