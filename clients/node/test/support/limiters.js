// Limiters with long time-outs: a busy machine must not look like a server that is away.

import * as io from 'redis-ratelimit/ioredis';
import * as valkey from 'redis-ratelimit/iovalkey';
import * as node from 'redis-ratelimit/node-redis';

const patient = (make) => (client, options) => make(client, { timeoutMs: 10_000, ...options });

export const ioredis = patient(io.ioredis);
export const iovalkey = patient(valkey.iovalkey);
export const nodeRedis = patient(node.nodeRedis);
