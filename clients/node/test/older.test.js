// The tests of this package with the major versions before the newest ones.

import assert from 'node:assert/strict';
import { cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { consumer, PACKAGE, run } from './support/consumer.js';
import { LONG, MODULE, NAMES, SERVERS } from './support/servers.js';

const OLDER = { express: 'express-4', ioredis: 'ioredis-5', redis: 'redis-5' };
const FILES = ['limiter', 'client', 'hold', 'express'].map((name) => `test/${name}.test.js`);

test('Express 4, ioredis 5 and node-redis 5 pass as well', LONG, async (t) => {
  const { folder } = await consumer(t, OLDER);
  await cp(join(PACKAGE, 'test'), join(folder, 'test'), { recursive: true });
  for (const name of Object.keys(OLDER)) {
    const { version } = JSON.parse(await readFile(join(folder, 'node_modules', name, 'package.json'), 'utf8'));
    assert.equal(version.split('.')[0], OLDER[name].split('-')[1]);
  }
  const env = {
    ...process.env,
    NODE_TEST_CONTEXT: undefined,
    RATELIMIT_MODULE: MODULE,
    RATELIMIT_SERVERS: SERVERS,
    RATELIMIT_ONLY: NAMES.slice(-1).join(),
  };
  const args = ['--test', '--test-reporter=tap', ...FILES];
  const { stdout } = await run(process.execPath, args, { cwd: folder, env }).catch((failed) => failed);
  assert.match(stdout, /^# fail 0$/m, stdout);
  assert.ok(Number(/^# pass (\d+)$/m.exec(stdout)[1]) >= 12, stdout);
});
