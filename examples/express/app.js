// A web application with limits by address and by user, and a page that shows its client what is left of them.
//
//     make run           # in one terminal: a server with the module
//     make express       # in another: this application, on http://127.0.0.1:3000 (PORT=3000 REDIS_URL=redis://localhost)

import { once } from 'node:events';
import { join } from 'node:path';

import express from 'express';
import { Redis } from 'ioredis';
import { network } from 'redis-ratelimit';
import { rateLimit } from 'redis-ratelimit/express';
import { ioredis } from 'redis-ratelimit/ioredis';

const WEB = join(import.meta.dirname, '../web');
const { PORT = '3000', REDIS_URL = 'redis://localhost' } = process.env;

// In place of a real application's sessions: the user of each token.
const USERS = new Map([['token-of-ann', 'ann'], ['token-of-bob', 'bob']]);

const redis = new Redis(REDIS_URL);
redis.on('error', (error) => console.error(error.message));
// While the server is away this process limits alone.
const limiter = ioredis(redis, { outage: 'local' });

/** Counts every client by address, and users by name as well, from any address. */
function limitsOf(req) {
  const limits = [{ key: `web:ip:${network(req.ip)}`, rules: '20/m,name=address' }];
  const user = USERS.get(req.get('authorization')?.replace('Bearer ', ''));
  if (user) limits.push({ key: `web:user:${user}`, rules: '5/m,name=user' });
  return limits;
}

const app = express();
app.set('trust proxy', 'loopback'); // only a proxy on this machine may set the client's address

// The page and the quota cost nothing, so a client without quota can see when its quota comes back.
app.get('/', (_req, res) => res.sendFile(join(WEB, 'quota.html')));
app.use('/web', express.static(WEB));
app.get('/quota', async (req, res) => {
  const reports = await Promise.all(limitsOf(req).map(({ key, rules }) => limiter.peekAll(key, rules)));
  res.json(reports.flatMap(({ rules }) => rules).map(({ name, remaining, limit }) => ({ name, remaining, limit })));
});

app.post('/ask', rateLimit(limiter, limitsOf), (_req, res) => res.send('42'));

app.use((error, _req, res, _next) => {
  console.error(error.message);
  res.sendStatus(error.status ?? 500);
});

const server = app.listen(Number(PORT), '127.0.0.1');
await once(server, 'listening');
console.log(`http://127.0.0.1:${server.address().port}/`);
