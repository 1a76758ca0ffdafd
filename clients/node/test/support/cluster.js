// A cluster of real servers: three primaries, and a replica of the first.

import { connect, freePort, startServer, until } from './servers.js';

const SLOTS = 16384;
const PRIMARIES = 3;
// A cluster's map lists a replica once its primary has sent it something. By default a primary pings every 10 s.
const OPTIONS = ['--cluster-enabled', 'yes', '--repl-diskless-sync-delay', 0, '--repl-ping-replica-period', 1];

/** Starts a cluster; replies with a client for each node, the replica last, and each node's name in the cluster. */
export async function startCluster(t, name, options = [], { bare } = {}) {
  const nodes = [];
  for (let i = 0; i <= PRIMARIES; i++) {
    const bus = await freePort();
    const server = await startServer(t, name, [...OPTIONS, ...options, '--cluster-port', bus], 'PONG', { bare });
    const { port } = server;
    const client = connect(t, port);
    nodes.push({ server, port, bus, client, id: await client.cluster('MYID') });
  }
  const [first] = nodes;
  for (const [i, { client }] of nodes.slice(0, PRIMARIES).entries()) {
    const [from, to] = [i, i + 1].map((part) => Math.floor((part * SLOTS) / PRIMARIES));
    await client.call('CLUSTER', 'ADDSLOTSRANGE', from, to - 1);
  }
  // Each node meets every other: gossip would take seconds.
  for (const [i, { port, bus }] of nodes.entries()) {
    for (const { client } of nodes.slice(0, i)) await client.call('CLUSTER', 'MEET', '127.0.0.1', port, bus);
  }
  const replica = nodes.at(-1);
  await until(async () => (await replica.client.call('CLUSTER', 'NODES')).includes(first.id));
  await replica.client.call('CLUSTER', 'REPLICATE', first.id);
  await until(async () => (await replica.client.info('replication')).includes('master_link_status:up'));
  for (const { client } of nodes) {
    await until(async () => {
      const [info, map] = await Promise.all([client.call('CLUSTER', 'INFO'), client.call('CLUSTER', 'SLOTS')]);
      return info.includes('cluster_state:ok') && map.length === PRIMARIES && map[0].length === 4;
    });
  }
  return nodes;
}
