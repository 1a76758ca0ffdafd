// A folder in which this package is installed as an application would install it, beside the packages that it works with.

import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

export const run = promisify(execFile);

export const PACKAGE = resolve(import.meta.dirname, '../..');

const ROOT = resolve(PACKAGE, '../..');

/** Copies the sources, until the test ends: to pack a package builds it, and other tests use this one meanwhile. Returns the copied package. */
export async function clone(t) {
  const folder = await mkdtemp(join(tmpdir(), 'clone-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const { stdout } = await run('git', ['ls-files', '-co', '--exclude-standard', '--', 'clients/node', 'clients/script', 'LICENSE-*'], { cwd: ROOT });
  for (const path of stdout.trim().split('\n')) await cp(join(ROOT, path), join(folder, path));
  return join(folder, 'clients/node');
}

/** Makes such a folder, and removes it after the test. `instead` maps names of packages to the packages that stand in for them. */
export async function consumer(t, instead = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'consumer-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const copy = await clone(t);
  await symlink(join(PACKAGE, 'node_modules'), join(copy, 'node_modules'));
  await run('npm', ['pack', copy], { cwd: folder });
  const [tarball] = await readdir(folder);
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', `./${tarball}`], { cwd: folder });
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }');
  for (const name of await readdir(join(PACKAGE, 'node_modules'))) {
    if (name.startsWith('.')) continue;
    await symlink(join(PACKAGE, 'node_modules', instead[name] ?? name), join(folder, 'node_modules', name));
  }
  return { folder, tarball };
}
