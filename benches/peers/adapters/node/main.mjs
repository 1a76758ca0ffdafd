// The protocol of benches/peers/adapter.py, for adapters in Node.js: `node main.mjs NAME redis://…`. A maker takes the address,
// and returns `hit(key, rules)`: whether the request passes, and the milliseconds until a retry, or null.

import { createInterface } from 'node:readline';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { makers } from './limiters.mjs';

const [peer, url] = process.argv.slice(2);
const hit = await makers[peer](url);

const now = () => Number(process.hrtime.bigint()) / 1e9;
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** Timers have milliseconds, so the rest is spent in turns of the event loop. */
async function until(at) {
  const left = (at - now()) * 1000;
  if (left > 2) await setTimeout(left - 1.5);
  while (now() < at) await setImmediate();
}

async function one({ key, rules, at = 0 }) {
  await until(at);
  const sent = now();
  try {
    const [ok, wait_ms] = await hit(key, rules);
    return { ok, wait_ms, sent, got: now() };
  } catch (error) {
    return { error: `${error.name}: ${error.message}`.slice(0, 200), sent, got: now() };
  }
}

async function many({ key, rules, keys, count = Infinity, seconds = 600, rate }) {
  const began = now();
  const late = [];
  while (late.length < count) {
    const due = rate ? began + late.length / rate : now();
    if (Math.max(due, now()) >= began + seconds) break;
    await until(due);
    await hit(`${key}:${late.length % keys}`, rules);
    late.push(Math.round((now() - due) * 1e6));
  }
  late.sort((a, b) => a - b);
  const quantile = (share) => late[Math.floor(share * late.length)] ?? null;
  return { made: late.length, seconds: now() - began, p50_us: quantile(0.5), p99_us: quantile(0.99) };
}

write({ ready: peer });
for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line);
  write(await ('keys' in call ? many(call) : one(call)));
}
