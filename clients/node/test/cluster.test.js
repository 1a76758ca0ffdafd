import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { Cluster } from 'ioredis';
import { createCluster } from 'redis';

import { beginMove, endMove, replies, startCluster } from './support/cluster.js';
import { ioredis, nodeRedis } from './support/limiters.js';
import { NAMES } from './support/servers.js';

const USERS = Array.from({ length: 60 }, (_, i) => `user:${i}`);

function connectIoredis(t, [{ port }], options = {}) {
  const client = new Cluster([{ host: '127.0.0.1', port }], options);
  client.on('error', () => {}); // each command reports it
  t.after(() => client.disconnect());
  return client;
}

async function connectNodeRedis(t, [{ port }]) {
  const client = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] });
  client.on('error', () => {}); // each command reports it
  t.after(() => client.destroy());
  return client.connect();
}

describe('in a cluster', { concurrency: true }, () => {
  for (const name of ['redis-7.0', 'valkey-9.1'].filter((name) => NAMES.includes(name))) {
    test(`of ${name}`, (t) => inCluster(t, name));
  }
});

async function inCluster(t, name) {
  const nodes = await startCluster(t, name);

  await t.test('each command goes to the node of its key at once', async (t) => {
    const before = await replies(nodes, 'MOVED');
    const clients = [ioredis(connectIoredis(t, nodes)), nodeRedis(await connectNodeRedis(t, nodes))];
    for (const [i, limiter] of clients.entries()) {
      for (const user of USERS) {
        assert.equal((await limiter.check(`${i}:${user}`, '2/h')).remaining, 1);
        assert.equal((await limiter.peek(`${i}:${user}`, '2/h')).remaining, 1);
      }
    }
    assert.equal(await replies(nodes, 'MOVED'), before);
  });

  await t.test('the plain call of ioredis asks the wrong nodes', async (t) => {
    const before = await replies(nodes, 'MOVED');
    const client = connectIoredis(t, nodes);
    for (const user of USERS) await client.call('RL.CHECK', `plain:${user}`, '2/h');
    assert.notEqual(await replies(nodes, 'MOVED'), before);
  });

  await t.test('keys of one slot are decided at once, and those of several are an error', async (t) => {
    for (const limiter of [ioredis(connectIoredis(t, nodes)), nodeRedis(await connectNodeRedis(t, nodes))]) {
      const before = await replies(nodes, 'MOVED');
      for (const user of USERS) {
        const limits = [{ key: `{${user}}:ip`, rules: '9/h' }, { key: `{${user}}:account`, rules: '5/h' }];
        assert.equal((await limiter.checkAll(limits)).verdict, 'allowed');
      }
      assert.equal(await replies(nodes, 'MOVED'), before);
      await assert.rejects(limiter.checkAll([{ key: 'a', rules: '9/h' }, { key: 'b', rules: '9/h' }]), /CROSSSLOT/);
    }
  });

  await t.test('keyPrefix is part of the key that finds the node', async (t) => {
    const before = await replies(nodes, 'MOVED');
    const limiter = ioredis(connectIoredis(t, nodes, { keyPrefix: 'app:' }));
    for (const user of USERS) await limiter.check(user, '2/h');
    assert.equal(await replies(nodes, 'MOVED'), before);
    const keys = await Promise.all(nodes.slice(0, 3).map(({ client }) => client.keys('app:user:*')));
    assert.equal(keys.flat().length, USERS.length);
  });

  await t.test('peeks go to replicas if scaleReads says so', async (t) => {
    const [first, replica] = [nodes[0], nodes.at(-1)];
    const user = await userOn(first);
    const limiter = ioredis(connectIoredis(t, nodes, { scaleReads: 'slave' }));
    await limiter.check(user, '2/h');
    await first.client.call('WAIT', 1, 10_000);
    assert.equal((await limiter.peek(user, '2/h')).remaining, 1);
    assert.match(await replica.client.info('commandstats'), /cmdstat_rl\.peek:calls=1,/i);
  });

  await t.test('a moving slot is followed, and what was consumed moves with it', async (t) => {
    const [from, , to] = nodes;
    const user = await userOn(from);
    const slot = await from.client.cluster('KEYSLOT', user);
    const limiters = [ioredis(connectIoredis(t, nodes)), nodeRedis(await connectNodeRedis(t, nodes))];
    const keys = limiters.map((_, i) => `{${user}}:${i}`);
    const check = (suffix, remaining) =>
      Promise.all(limiters.map(async (limiter, i) => {
        assert.equal((await limiter.check(keys[i] + suffix, '9/h')).remaining, remaining);
      }));
    await check('', 8);
    await beginMove(slot, from, to);
    const asked = await replies(nodes, 'ASK');
    await check('', 7); // the key is still there
    await check(':new', 8); // the node of the slot knows no such key: ASK
    assert.equal(await replies(nodes, 'ASK'), asked + 2);
    await endMove(slot, from, to);
    const moved = await replies(nodes, 'MOVED');
    await check('', 6);
    assert.ok((await replies(nodes, 'MOVED')) > moved, 'the clients had the old map');
    await check(':new', 7);
  });

  /** A user whose key this node serves. */
  async function userOn({ client }) {
    const [[from, to]] = (await client.call('CLUSTER', 'SLOTS')).filter(([, , [, port]]) => port === client.options.port);
    for (const user of USERS) {
      const slot = await client.cluster('KEYSLOT', user);
      if (from <= slot && slot <= to) return user;
    }
  }
}
