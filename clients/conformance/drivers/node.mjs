// The driver of `redis-ratelimit` for Node.js: `node --expose-gc node.mjs ioredis`, or `node-redis`.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const PACKAGE = new URL('../../node/', import.meta.url);
const require = createRequire(new URL('package.json', PACKAGE));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const [{ isOutage, Lease, RateLimiter }, io, node, { Cluster, Redis }, { createClient, createCluster }] = await Promise.all([
  import(new URL('dist/index.js', PACKAGE)),
  import(new URL('dist/ioredis.js', PACKAGE)),
  import(new URL('dist/node-redis.js', PACKAGE)),
  load('ioredis'),
  load('redis'),
]);

const STACKS = {
  ioredis: {
    name: 'node-ioredis',
    client: (url) => new Redis(url, { lazyConnect: true }),
    cluster: (url) => new Cluster([url], { lazyConnect: true }),
    limiter: io.ioredis,
    close: (client) => client.disconnect(),
  },
  'node-redis': {
    name: 'node-redis',
    client: (url) => createClient({ url }),
    cluster: (url) => createCluster({ rootNodes: [{ url }] }),
    limiter: node.nodeRedis,
    close: (client) => client.isOpen && client.destroy(),
  },
};
const stack = STACKS[process.argv[2]];

const SPECIAL = { nan: NaN, infinity: Infinity, '-infinity': -Infinity, undefined, object: {} };
const clients = new Map();
const limiters = new Map();
const holds = new Map();
const leases = new Map();
/** What cancels a call under way. */
const cancels = new Map();

const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** A value as JavaScript has it. */
function value(sent) {
  if (Array.isArray(sent)) return sent.map(value);
  if (typeof sent !== 'object' || sent === null) return sent;
  if (sent.is === 'bytes') return Buffer.from(sent.hex, 'hex');
  if ('is' in sent) return SPECIAL[sent.is];
  return Object.fromEntries(Object.entries(sent).map(([name, one]) => [name, value(one)]));
}

/** A result as the protocol has it. */
function plain(result) {
  if (Array.isArray(result)) return result.map(plain);
  if (typeof result !== 'object' || result === null) return result;
  return Object.fromEntries(Object.entries(result).map(([name, one]) => [snake(name), plain(one)]));
}

/** The options of these names that the call has. */
function some(call, ...names) {
  return Object.fromEntries(names.filter((name) => name in call).map((name) => [camel(name), value(call[name])]));
}

function makeLimiter({ limiter, url, options = {} }) {
  const given = Object.fromEntries(Object.entries(options).map(([name, one]) => [camel(name), value(one)]));
  if (!url) return void limiters.set(limiter, RateLimiter.inProcess(given.policies));
  const tell = (event) => ({ error, ...told }) => write({ event, limiter, ...(error && { error: error.message }), ...told });
  const plainUrl = url.replace('redis+cluster:', 'redis:');
  const client = url === plainUrl ? stack.client(url) : stack.cluster(plainUrl);
  client.on('error', () => {}); // each call reports it
  const hooks = { onOutage: tell('outage'), onMisconfigured: tell('misconfigured'), onDecision: tell('decision') };
  limiters.set(limiter, stack.limiter(client, { ...hooks, ...given }));
  clients.set(limiter, client);
}

async function enter(limiter, call, signal) {
  const options = some(call, 'ttl_ms', 'cost', 'meta', 'refund', 'flow', 'weight', 'priority');
  if ('own_id' in call) options.id = value(call.own_id);
  if ('timeout_ms' in call) options.waitMs = value(call.timeout_ms);
  const hold = await limiter.hold(value(call.key), value(call.rules), { ...options, signal });
  holds.set(call.hold, hold);
  return hold.reply;
}

const OF_HOLD = {
  leave: (hold) => hold[Symbol.asyncDispose](),
  hold_settle: (hold, call) => hold.settle(some(call, 'cost', 'refund')),
  hold_refund: (hold) => hold.refund(),
  lost: (hold) => hold.lost.aborted,
};

const limits = (call) => value(call.limits).map(([key, rules]) => ({ key, rules }));

const OF_LIMITER = {
  check: (limiter, call, key, rules) => limiter.check(key, rules, some(call, 'cost', 'meta')),
  peek: (limiter, call, key, rules) => limiter.peek(key, rules, some(call, 'cost')),
  check_all: (limiter, call) => limiter.checkAll(limits(call), some(call, 'cost', 'meta')),
  check_any: (limiter, call) => limiter.checkAny(limits(call), some(call, 'cost', 'meta', 'most')),
  peek_all: (limiter, call, key, rules) => limiter.peekAll(key, rules),
  wait: (limiter, call, key, rules, signal) =>
    limiter.wait(key, rules, value(call.timeout_ms), { ...some(call, 'cost', 'meta', 'flow', 'weight', 'priority'), signal }),
  enter: (limiter, call, _key, _rules, signal) => enter(limiter, call, signal),
  settle: (limiter, call, key) => limiter.settle(key, value(call.own_id), some(call, 'cost', 'refund')),
  renew: (limiter, call, key) => limiter.renew(key, value(call.own_id), value(call.ttl_ms)),
  refund: (limiter, call, key, rules) => limiter.refund(key, value(call.units), ...('rules' in call ? [rules] : [])),
  reset: (limiter, call, key) => limiter.reset(key),
  resume: (limiter, call, key) => limiter.resume(key),
  unplan: (limiter, call, key) => limiter.unplan(key),
  pause: (limiter, call, key) => limiter.pause(key, value(call.time_ms), call.reason),
  plan: (limiter, call, key) => limiter.plan(key, value(call.policy), value(call.time_ms)),
  sync: (limiter, call, key) => limiter.sync(key, value(call.remaining), call.rule),
  follow: (limiter, call, key) => limiter.follow(key, call.status, call.headers, call.fields),
  lease: (limiter, call, key, rules) => void leases.set(call.lease, new Lease(limiter, key, rules, some(call, 'ttl_ms', 'most'))),
  state: ({ away, outages }) => ({ away, outages }),
  close: async (limiter, call) => {
    await limiter.close();
    if (clients.has(call.limiter)) stack.close(clients.get(call.limiter));
  },
};

/** The bytes that the program holds. */
function memory() {
  gc();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

function make(call, signal) {
  if (call.call === 'limiter') return makeLimiter(call);
  if (call.call === 'cancel') return cancels.get(call.of)();
  if (call.call === 'memory') return memory();
  if (call.call === 'take') return leases.get(call.lease).take(value(call.units));
  if (call.call === 'give_up') return leases.get(call.lease).close();
  if (call.call in OF_HOLD) return OF_HOLD[call.call](holds.get(call.hold), call);
  return OF_LIMITER[call.call](limiters.get(call.limiter), call, value(call.key), value(call.rules), signal);
}

async function answer(call) {
  const cancelled = new AbortController();
  cancels.set(call.id, () => cancelled.abort());
  try {
    const result = await make(call, cancelled.signal);
    write({ id: call.id, result: plain(result) ?? null });
  } catch (error) {
    const { name: kind, message: text, reply } = error;
    write({ id: call.id, error: { kind, text, outage: isOutage(error), ...(reply && { report: plain(reply) }) } });
  } finally {
    cancels.delete(call.id);
  }
}

write({ driver: stack.name, can: ['cancel', 'memory'] });
createInterface({ input: process.stdin }).on('line', (line) => void answer(JSON.parse(line)));
