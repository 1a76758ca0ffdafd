// The package as it would be published, and all that its README shows.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { test } from 'node:test';

import { clone, consumer, PACKAGE, run } from './support/consumer.js';
import { ioredis } from './support/limiters.js';
import { connect, freePort, LONG, NAMES, startServer, until } from './support/servers.js';

const ROOT = resolve(PACKAGE, '../..');
const README = await readFile(join(PACKAGE, 'README.md'), 'utf8');
const MANIFEST = JSON.parse(await readFile(join(PACKAGE, 'package.json'), 'utf8'));
const STRICT = ['--strict', '--module', 'nodenext', '--target', 'es2023', '--lib', 'es2023,dom,esnext.disposable', '--skipLibCheck', '--types', 'node', '--experimentalDecorators', '--emitDecoratorMetadata'];

/** Stands for the answer of an upstream whose limit is reached. */
const PAUSES = "(console.log(hold.lost.aborted), new Response(null, { status: 429, headers: { 'retry-after': '30' } }))";

/** Adds a job, and tells its result and what is left. */
const ASKS = `import { Queue } from 'bullmq';
  worker.on('completed', async (_, result) => {
    console.log(result, (await limiter.peek('tenant:ann', '100/m')).remaining, (await limiter.peek('tenant:ann', 'slots:4')).remaining);
    process.exit();
  });
  await new Queue('pages', { connection: { url: process.env.REDIS_URL! } }).add('page', { tenant: 'ann', url: '/' });`;

function blocks(...languages) {
  const fenced = README.matchAll(/^```(\w+)\n(.*?)^```$/gms);
  return [...fenced].filter(([, language]) => languages.includes(language)).map(([, , text]) => text);
}

test('the package', async (t) => {
  const built = async () => (await stat(join(PACKAGE, 'dist/index.js'))).mtimeMs;
  const before = await built();
  const { folder, tarball } = await consumer(t);
  const installed = join(folder, 'node_modules/redis-ratelimit');

  await t.test('is built elsewhere, since other tests use this one meanwhile', async () => assert.equal(await built(), before));

  await t.test('is installed by the commands of the README', () => {
    const [commands] = blocks('sh');
    assert.equal(commands, `npm pack ../redis-ratelimit/clients/node\nnpm install ./${tarball} ioredis\n`);
  });

  await t.test('exports every entry with its types, for import and for require', async () => {
    for (const file of Object.values(MANIFEST.exports)) {
      assert.match(await readFile(join(installed, file.replace(/js$/, 'd.ts')), 'utf8'), /export/);
    }
    const names = Object.keys(MANIFEST.exports).map((entry) => join(MANIFEST.name, entry));
    const script = (load) => `for (const name of ${JSON.stringify(names)}) ${load}(name)`;
    const node = (...args) => run(process.execPath, ['--no-warnings', ...args], { cwd: folder });
    await Promise.all([
      node('--input-type=module', '-e', script('await import')),
      node('--input-type=commonjs', '-e', script('require')),
    ]);
  });

  await t.test('holds only files that were built from src', async () => {
    const { stdout } = await run('tar', ['-tf', join(folder, tarball)]);
    const others = stdout.trim().split('\n').filter((path) => !/^package\/dist\/[\w-]+\.(js|d\.ts)$/.test(path));
    const { stdout: script } = await run('tar', ['-xOf', join(folder, tarball), 'package/dist/ratelimit.lua']);
    assert.equal(script, await readFile(join(ROOT, 'clients/script/ratelimit.lua'), 'utf8'));
    assert.deepEqual(others.sort(), ['LICENSE-APACHE', 'LICENSE-MIT', 'README.md', 'dist/ratelimit.lua', 'package.json'].map((name) => `package/${name}`));
  });

  await t.test('has a README whose links work on a registry', () => {
    assert.doesNotMatch(README, /\]\((?!https:)/);
  });

  await t.test('has types for every entry under old and new module resolution', LONG, async () => {
    const names = Object.keys(MANIFEST.exports).map((entry) => join(MANIFEST.name, entry));
    await writeFile(join(folder, 'entries.ts'), names.map((name, i) => `import * as entry${i} from '${name}';\nvoid entry${i};\n`).join(''));
    const tsc = (version, module, resolution) => {
      const args = ['--strict', '--noEmit', '--skipLibCheck', '--esModuleInterop', '--target', 'es2022', '--types', 'node', '--module', module];
      const found = ['--moduleResolution', resolution, 'entries.ts'];
      return run(process.execPath, [join(PACKAGE, 'node_modules', version, 'bin/tsc'), ...args, ...found], { cwd: folder })
        .catch(({ stdout }) => assert.fail(`${version} ${resolution}: ${stdout}`));
    };
    await tsc('typescript-5', 'commonjs', 'node10');
    await tsc('typescript-5', 'node16', 'node16');
    await tsc('typescript', 'esnext', 'bundler');
  });

  await t.test('has types that need no library of a browser', LONG, async () => {
    const code = `import { type AnswerHeaders, type RateLimiter, Saturated } from 'redis-ratelimit';
      export async function follow(limiter: RateLimiter, answer: Response, told: Map<string, string>): Promise<void> {
        const headers: AnswerHeaders[] = [answer.headers, told, { 'retry-after': '3' }, [['retry-after', '3']]];
        for (const given of headers) await limiter.follow('k', answer.status, given);
        if (answer.ok) throw new Saturated('');
      }\n`;
    await writeFile(join(folder, 'follow.ts'), code);
    for (const lib of ['es2022', 'es2022,dom', 'es2022,dom,dom.iterable']) {
      const args = ['--strict', '--noEmit', '--target', 'es2022', '--module', 'nodenext', '--types', 'node', '--lib', lib, 'follow.ts'];
      await run(join(PACKAGE, 'node_modules/.bin/tsc'), args, { cwd: folder }).catch(({ stdout }) => assert.fail(`${lib}: ${stdout}`));
    }
  });

  // Each program of the README runs in its own process, after the first one, which makes the limiter.
  const [shown, any, ...others] = blocks('js', 'ts');
  const first = shown.replace('timeoutMs: 250', 'timeoutMs: 2000'); // for a busy machine
  assert.notEqual(first, shown);
  const holds = others.pop();
  const counts = others.pop();
  const queue = others.pop();
  const nest = `import 'reflect-metadata';
    import { Controller, Get } from '@nestjs/common';
    import { NestFactory } from '@nestjs/core';
    @Controller() class Routes { @Get() hello() { return 'hello'; } }
    @Module({ imports: [AppModule], controllers: [Routes] }) class Served {}
    await (await NestFactory.create(Served, { logger: false })).listen(3000);`;
  const ports = await Promise.all([...others, first].map(freePort));
  const programs = [
    ...others.map((code, i) => `${first}${code}${code.includes('@Module') ? nest : ''}`.replace('3000', ports[i])),
    `${first}redis.disconnect();`,
    `${first}${holds.replace("fetch('https://example.com/export', { signal: hold.lost })", PAUSES)}redis.disconnect();`,
    `${first}${any}redis.disconnect();`,
    `${first}${counts}redis.disconnect();`,
    `${first}${queue}${ASKS}`,
  ];

  const word = "{ outage: 'local',";
  assert.ok(first.includes(word));
  await writeFile(join(folder, 'script.js'), `${first.replace(word, `${word} engine: 'script',`)}redis.disconnect();`);

  await t.test('has types that fit the code of the README', async () => {
    await Promise.all(programs.map((code, i) => writeFile(join(folder, `readme${i}.ts`), code)));
    const files = programs.map((_, i) => `readme${i}.ts`);
    await run(join(PACKAGE, 'node_modules/.bin/tsc'), [...STRICT, ...files], { cwd: folder }).catch(({ stdout }) => assert.fail(stdout));
  });

  await t.test('does what the README says', { concurrency: true }, async (t) => {
    const titles = ['Express', 'express-rate-limit', '@fastify/rate-limit', 'NestJS'];
    await Promise.all([
      ...titles.map((title, i) => t.test(title, (t) => limits(t, folder, `readme${i}.js`, ports[i]))),
      t.test('limiter', async (t) => {
        const { port } = await startServer(t);
        const { stdout } = await run(process.execPath, [`readme${titles.length}.js`], { cwd: folder, env: envOf(port) });
        assert.equal(stdout, 'allowed 4 0\n');
        const again = await run(process.execPath, [`readme${titles.length + 1}.js`], { cwd: folder, env: envOf(port) });
        assert.equal(again.stdout, 'allowed 3 0\nfalse\n');
        const some = await run(process.execPath, [`readme${titles.length + 2}.js`], { cwd: folder, env: envOf(port) });
        assert.equal(some.stdout, 'allowed 2 0\n{up}:key1\n');
        const counted = await run(process.execPath, [`readme${titles.length + 3}.js`], { cwd: folder, env: envOf(port) });
        assert.equal(counted.stdout, 'allowed 1 0\nserver,allowed,login\n');
        assert.ok((await ioredis(connect(t, port)).peek('export', '60/m')).waitMs > 20_000);
        const queued = await run(process.execPath, [`readme${titles.length + 4}.js`], { cwd: folder, env: envOf(port) });
        assert.equal(queued.stdout, 'allowed 0 0\nfetched / 99 4\n');
      }),
      ...NAMES.map((name) =>
        t.test(`limiter, by the script on ${name}`, async (t) => {
          const { port } = await startServer(t, name, [], 'PONG', { bare: true });
          const { stdout } = await run(process.execPath, ['script.js'], { cwd: folder, env: envOf(port) });
          assert.equal(stdout, 'allowed 4 0\n');
          assert.deepEqual(await connect(t, port).keys('*'), ['login:42:script']);
        }),
      ),
    ]);
  });
});

test('npm pack works in a clean clone', LONG, async (t) => {
  const copy = await clone(t);
  const env = { ...process.env, npm_config_prefer_offline: 'true' };
  await run('npm', ['pack'], { cwd: copy, env });
  assert.match((await run('tar', ['-tf', join(copy, `redis-ratelimit-${MANIFEST.version}.tgz`)])).stdout, /package\/dist\/ioredis\.d\.ts/);
});

test('no file imports itself, directly or through others', async () => {
  const folder = join(PACKAGE, 'src');
  const imports = new Map();
  for (const file of await readdir(folder)) {
    const text = await readFile(join(folder, file), 'utf8');
    imports.set(file, Array.from(text.matchAll(/ from '\.\/([\w-]+)\.js'/g), ([, name]) => `${name}.ts`));
  }
  assert.ok(imports.get('limiter.ts').includes('hold.ts'), 'imports are found');
  const seen = new Set();
  const visit = (file, path) => {
    assert.ok(!path.includes(file), [...path, file].join(' -> '));
    if (seen.has(file)) return;
    for (const next of imports.get(file)) visit(next, [...path, file]);
    seen.add(file);
  };
  for (const file of imports.keys()) visit(file, []);
});

/** Runs a program that limits requests, and pauses its Redis server: the program goes on limiting by itself. */
async function limits(t, folder, program, port) {
  const server = await startServer(t);
  const web = spawn(process.execPath, [program], { cwd: folder, env: envOf(server.port), stdio: 'ignore' });
  const ended = once(web, 'exit');
  t.after(async () => {
    web.kill();
    await ended;
  });
  const get = async (path) => (await fetch(`http://127.0.0.1:${port}${path}`, { headers: { connection: 'close' } })).status;
  await until(() => get('/unknown').catch(() => false));
  const statuses = async () => {
    const found = [];
    for (let request = 0; request < 7; request++) found.push(await get('/'));
    return [found[0], found.at(-1)];
  };
  assert.deepEqual(await statuses(), [200, 429]);
  server.pause();
  assert.deepEqual(await statuses(), [200, 429]);
}

function envOf(port) {
  return { ...process.env, REDIS_URL: `redis://127.0.0.1:${port}` };
}
