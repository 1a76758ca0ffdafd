// @fastify/rate-limit as its own tests require it, with our store wherever a test asks for its store of Redis.

const { Redis } = require('ioredis');
const rateLimit = require('@fastify/rate-limit');
const { ioredis } = require('redis-ratelimit/ioredis');
const { rateLimitStore } = require('redis-ratelimit/fastify-rate-limit');

// A busy machine must not look like a server that is away.
const PATIENT = { timeoutMs: 10_000 };
// Numbers the tests that ask for no store of Redis: they name no server, and share no counts.
let tests = 0;

async function withOurStore(fastify, { redis, nameSpace, ...options }) {
  const store = redis
    ? rateLimitStore(ioredis(redis, PATIENT), { prefix: nameSpace })
    : rateLimitStore(ioredis(new Redis(Number(process.env.PORT)), PATIENT), { prefix: `${tests++}:` });
  return rateLimit(fastify, { ...options, store });
}
withOurStore[Symbol.for('skip-override')] = true; // for the whole application, as the plugin does

module.exports = withOurStore;
