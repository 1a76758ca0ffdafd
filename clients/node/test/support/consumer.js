// A folder in which this package is installed as an application would install it, beside the packages that it works with.

import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

export const run = promisify(execFile);

export const PACKAGE = resolve(import.meta.dirname, '../..');

/** Makes such a folder, and removes it after the test. `instead` maps names of packages to the packages that stand in for them. */
export async function consumer(t, instead = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'consumer-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  await run('npm', ['pack', PACKAGE], { cwd: folder });
  const [tarball] = await readdir(folder);
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', `./${tarball}`], { cwd: folder });
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }');
  for (const name of await readdir(join(PACKAGE, 'node_modules'))) {
    if (name.startsWith('.')) continue;
    await symlink(join(PACKAGE, 'node_modules', instead[name] ?? name), join(folder, 'node_modules', name));
  }
  return { folder, tarball };
}
