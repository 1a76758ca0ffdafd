// Packages of Node.js on ioredis, each as its README uses it.

import { createHash } from 'node:crypto';
import rateLimitOfFastify from '@fastify/rate-limit';
import { Ratelimit } from '@upstash/ratelimit';
import Bottleneck from 'bottleneck';
import { rateLimit } from 'express-rate-limit';
import fastify from 'fastify';
import Redis from 'ioredis';
import { RateLimiterRedis, RateLimiterUnion } from 'rate-limiter-flexible';
import { RedisStore } from 'rate-limit-redis';
import { ioredis } from '../../../../clients/node/dist/ioredis.js';

/** A client whose errors end no process. */
function connect(url, options) {
  const client = new Redis(url, options);
  client.on('error', () => {});
  return client;
}

/** What `make` made for these arguments before, or makes now. */
function kept(make) {
  const made = new Map();
  return (...given) => {
    const name = JSON.stringify(given);
    if (!made.has(name)) made.set(name, make(...given));
    return made.get(name);
  };
}

/** Several rules where a peer has no way to ask for them at once: one after the other, until one denies. */
function inOrder(hit) {
  return async (key, rules) => {
    for (const rule of rules) {
      const [ok, waitMs] = await hit(rules.length > 1 ? `${key}:${rule[1]}` : key, rule);
      if (!ok) return [ok, waitMs];
    }
    return [true, 0];
  };
}

/** Several rules are a union, which consumes of all at once. */
function flexible(url) {
  const storeClient = connect(url);
  const limiter = ([points, periodMs], more) => new RateLimiterRedis({ storeClient, points, duration: periodMs / 1000, ...more });
  const limiterOf = kept((...rules) =>
    rules.length === 1 ? limiter(rules[0]) : new RateLimiterUnion(...rules.map((rule) => limiter(rule, { keyPrefix: `r${rule[1]}` }))),
  );
  return async (key, rules) => {
    try {
      await limiterOf(...rules).consume(key);
      return [true, 0];
    } catch (denied) {
      if (denied instanceof Error) throw denied;
      return [false, denied.msBeforeNext ?? Math.max(...Object.values(denied).map((each) => each.msBeforeNext))];
    }
  };
}

/** express-rate-limit's middleware with rate-limit-redis, called with what it needs of a request and a response. */
function express(url) {
  const client = connect(url);
  const middlewareOf = kept((max, windowMs) => {
    const store = new RedisStore({ sendCommand: (command, ...args) => client.call(command, ...args) });
    return rateLimit({ windowMs, max, standardHeaders: true, legacyHeaders: false, store, keyGenerator: (req) => req.key });
  });
  return inOrder(
    (key, rule) =>
      new Promise((resolve, reject) => {
        let seconds;
        const setHeader = (name, value) => void (name === 'Retry-After' && (seconds = value));
        const response = { setHeader, status: () => response, send: () => resolve([false, seconds * 1000]) };
        Promise.resolve(middlewareOf(...rule)({ key, ip: '127.0.0.1', app: { get: () => false }, headers: {} }, response, (error) =>
          error ? reject(error) : resolve([true, 0]),
        )).catch(reject);
      }),
  );
}

/** Fastify, whose requests are injected, so that no HTTP is measured. */
async function ofFastify(url) {
  const redis = connect(url, { connectTimeout: 500, maxRetriesPerRequest: 1 });
  const applicationOf = kept(async (max, timeWindow) => {
    const app = fastify();
    const keyGenerator = (request) => request.headers['x-key'];
    await app.register(rateLimitOfFastify, { max, timeWindow, redis, keyGenerator });
    app.get('/', () => '');
    return app;
  });
  return inOrder(async (key, rule) => {
    const { statusCode, headers } = await (await applicationOf(...rule)).inject({ url: '/', headers: { 'x-key': key } });
    if (statusCode >= 500) throw new Error(`status ${statusCode}`);
    return [statusCode === 200, headers['retry-after'] * 1000 || 0];
  });
}

/** A reservoir a key, clustered; a request that would have to wait is refused. */
function bottleneck(url) {
  const { hostname: host, port } = new URL(url);
  const groupOf = kept((limit, periodMs) => {
    const group = new Bottleneck.Group({
      reservoir: limit, reservoirRefreshAmount: limit, reservoirRefreshInterval: periodMs, highWater: 0,
      strategy: Bottleneck.strategy.OVERFLOW, datastore: 'ioredis', Redis, clientOptions: { host, port },
    });
    group.on('error', () => {});
    return group;
  });
  return inOrder(async (key, rule) => {
    try {
      return await groupOf(...rule).key(key).schedule(async () => [true, 0]);
    } catch (error) {
      if (/dropped/.test(error.message)) return [false, null];
      throw error;
    }
  });
}

/** @upstash/ratelimit on a plain server: the calls of its client by ioredis, and its scripts without the flag that only Upstash has. */
function upstash(algorithm) {
  return (url) => {
    const client = connect(url);
    const sha1 = (text) => createHash('sha1').update(text).digest('hex');
    const loaded = new Map();
    const redis = {
      evalsha: (sha, keys, args) =>
        loaded.has(sha) ? client.evalsha(loaded.get(sha), keys.length, ...keys, ...args) : Promise.reject(new Error('NOSCRIPT')),
      eval: (script, keys, args) => {
        const plain = script.replace(/^#!.*\n/, '');
        loaded.set(sha1(script), sha1(plain));
        return client.eval(plain, keys.length, ...keys, ...args);
      },
    };
    const limiterOf = kept((limit, periodMs) => {
      const period = `${periodMs} ms`;
      const limiter = { fixed: Ratelimit.fixedWindow, sliding: Ratelimit.slidingWindow }[algorithm]?.(limit, period) ?? Ratelimit.tokenBucket(limit, period, limit);
      return new Ratelimit({ redis, limiter, enableTelemetry: false });
    });
    return inOrder(async (key, rule) => {
      const { success, reset } = await limiterOf(...rule).limit(key);
      return [success, success ? 0 : Math.max(0, reset - Date.now())];
    });
  };
}

function own(url) {
  const limiter = ioredis(connect(url), { outage: 'local', timeoutMs: 250 });
  const unit = { 1000: 's', 60000: 'm', 3600000: 'h' };
  const textOf = kept((limit, periodMs) => `${limit}/${unit[periodMs]}`);
  return async (key, rules) => {
    const { verdict, waitMs } = await limiter.check(key, rules.map((rule) => textOf(...rule)));
    return [verdict === 'allowed', waitMs];
  };
}

function incr(url) {
  const client = connect(url);
  return async (key) => [(await client.incr(key)) > 0, null];
}

export const makers = {
  'ioredis INCR': incr,
  'ours node': own,
  'rate-limiter-flexible': flexible,
  'rate-limit-redis': express,
  '@fastify/rate-limit': ofFastify,
  bottleneck,
  '@upstash fixed': upstash('fixed'),
  '@upstash sliding': upstash('sliding'),
  '@upstash bucket': upstash('bucket'),
};
