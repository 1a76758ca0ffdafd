// A primary, its replica, and a sentinel that tells clients which server is the primary.

import { connect, startServer, until } from './servers.js';

export const GROUP = 'limits';

/** Starts them. The sentinel does not start a failover by itself: no primary is away for an hour. */
export async function startWatched(t) {
  const primary = await startServer(t, undefined, ['--repl-diskless-sync-delay', 0]);
  const replica = await startServer(t, undefined, ['--replicaof', `127.0.0.1 ${primary.port}`]);
  const admin = connect(t, replica.port);
  await until(async () => (await admin.info('replication')).includes('master_link_status:up'));
  const watches = [`monitor ${GROUP} 127.0.0.1 ${primary.port} 1`, `down-after-milliseconds ${GROUP} 3600000`];
  const config = watches.map((line) => `sentinel ${line}\n`).join('');
  const sentinel = await startServer(t, undefined, ['--sentinel'], 'PONG', { bare: true, config });
  return { primary, replica, sentinel };
}

/** Begins to promote the replica, once the sentinel knows enough of it. */
export async function failOver(t, sentinel) {
  const admin = connect(t, sentinel.port, { enableReadyCheck: false });
  await until(() => admin.call('SENTINEL', 'FAILOVER', GROUP).then(() => true, () => false));
}
