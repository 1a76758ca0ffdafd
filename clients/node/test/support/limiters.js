// Limiters with long time-outs: a busy machine must not look like a server that is away.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

import * as io from 'redis-ratelimit/ioredis';
import * as valkey from 'redis-ratelimit/iovalkey';
import * as node from 'redis-ratelimit/node-redis';

import { connect, until } from './servers.js';

const patient = (make) => (client, options) => make(client, { timeoutMs: 10_000, ...options });

export const ioredis = patient(io.ioredis);
export const iovalkey = patient(valkey.iovalkey);
export const nodeRedis = patient(node.nodeRedis);

/** The server decides the first of two keys, and is then silent until the check has its answer. */
export async function outageAmidKeys(t, port, options) {
  const other = ioredis(connect(t, port), options);
  const left = async () => (await other.peek('a', '5/m')).remaining;
  for (const outage of ['raise', 'allow', 'deny', 'local']) {
    await other.reset('a');
    const client = connect(t, port);
    const limiter = ioredis(client, { ...options, outage });
    const send = client.sendCommand.bind(client);
    let resume;
    const answered = new Promise((resolve) => (resume = resolve));
    let silent = false;
    client.sendCommand = (command) => {
      const fails = command.args.some((word) => word === 'b' || word === 'b:script');
      silent ||= fails;
      return fails ? Promise.reject(new Error('no reply')) : silent ? answered.then(() => send(command)) : send(command);
    };
    const asked = limiter.checkAll([{ key: 'a', rules: '5/m' }, { key: 'b', rules: '5/m' }]).catch(({ message }) => message);
    const found = await Promise.race([asked, sleep(5000, 'the answer waits for a refund', { ref: false })]);
    assert.equal(found.source ?? found, outage === 'raise' ? 'no reply' : outage === 'local' ? 'local' : 'outage');
    assert.equal(await left(), 4);
    resume();
    await until(async () => (await left()) === 5);
  }
}
