// Twenty tenants of one queue of BullMQ, each with a rule of its own.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { start } from './support/bullmq.js';
import { LONG } from './support/servers.js';

/** How far a tenant may be from its rate: `make test` may share its machine. */
const FAR = LONG.skip ? 0.5 : 0.1;

test('each of twenty tenants gets its rate, while one of them floods', { timeout: 120_000 }, async (t) => {
  const { queue, work } = await start(t);
  const seconds = 7;
  const tenants = Array.from({ length: 20 }, (_, n) => {
    const rate = 2 + (n % 2);
    const [rule] = [`${3 * rate}/3s`, `bucket:${rate}/s`, `fixed:${rate}/s`].slice(n % 3);
    return { name: n === 0 ? 'flood' : `tenant${n}`, rate, rule, asks: n === 0 ? 500 : rate * 24 };
  });
  const jobs = tenants.flatMap(({ name, rule, asks }) => Array.from({ length: asks }, () => ({ name, data: { rule } })));
  const added = await queue.addBulk(jobs);
  const ran = [];
  const run = async ({ id, name, attemptsMade }) => ran.push({ id, name, attemptsMade, at: Date.now() });
  const options = { rules: (job) => job.data.rule, key: (job) => `tenant:${job.name}` };
  const workers = [work(run, options, { concurrency: 10 }), work(run, options, { concurrency: 10 })];
  const measure = (from) => tenants.map((tenant) => {
    const times = ran.filter(({ name, at }) => name === tenant.name && at >= from && at < from + seconds * 1000).map(({ at }) => at);
    // Under a log, as many jobs as its limit run as a group, so the rate is that between the ends of the first and the last group.
    const group = 3 * tenant.rate;
    const whole = times.length - (times.length % group);
    const between = (1000 * (whole - group)) / (times[whole - 1] - times[group - 1]);
    return { ...tenant, ran: times.length, got: /^\d/.test(tenant.rule) && !LONG.skip ? between : times.length / seconds };
  });
  // At first as many jobs run at once, and each job is looked at. Another load of the machine may disturb some seconds.
  let rows;
  let late = Infinity;
  do {
    if (late === Infinity && new Set(ran.map(({ name }) => name)).size === tenants.length) late = Date.now() + 24_000; // as many jobs as that are there
    await sleep(1000 - (Date.now() % 1000)); // whole seconds of the clock, as `fixed` has them
    rows = measure(Date.now() - (Date.now() % 1000) - seconds * 1000);
  } while (!rows.every(({ rate, got }) => Math.abs(got - rate) <= rate * FAR) && Date.now() < late);
  await Promise.all(workers.map((worker) => worker.close()));

  console.log(`BullMQ, 2 workers, ${seconds} s\ntenant    rule          asked   ran  got a second`);
  for (const { name, rule, asks, ran, got } of rows) {
    console.log(name.padEnd(9), rule.padEnd(12), String(asks).padStart(6), String(ran).padStart(5), got.toFixed(2).padStart(13));
  }
  for (const { name, rate, got } of rows) assert.ok(Math.abs(got - rate) <= rate * FAR, `${name}: ${got} of ${rate}`);
  assert.equal(new Set(ran.map(({ id }) => id)).size, ran.length, 'no job runs twice');
  assert.ok(ran.every(({ attemptsMade }) => attemptsMade === 0), 'a denial is no attempt');
  const { completed, delayed, waiting, ...others } = await queue.getJobCounts();
  assert.equal(completed, ran.length);
  assert.equal(completed + delayed + waiting, added.length, 'no job is lost');
  assert.deepEqual(Object.values(others).filter((n) => n > 0), []);
});
