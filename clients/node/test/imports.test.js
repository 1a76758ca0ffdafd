import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { PACKAGE } from './support/consumer.js';

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
