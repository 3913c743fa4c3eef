// Finishes the build of dist: puts the version and the SQL files into the built modules, so that bundlers take them
// along, and removes files of earlier builds whose source is gone, so that they are not published. Part of
// `npm run build`.

import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';

const dist = new URL('../dist/', import.meta.url);

const { version } = await import('../dist/core/package-version.js');
const { sqlTexts } = await import('../dist/database/sql-texts.js');

write('core/package-version.js', { version });
write('database/sql-texts.js', { sqlTexts });
removeOld();

function write(file, values) {
  const lines = Object.entries(values).map(
    ([name, value]) => `export const ${name} = ${JSON.stringify(value, null, 1)};\n`,
  );
  writeFileSync(new URL(file, dist), `// Written by scripts/embed.mjs.\n\n${lines.join('')}`);
}

/** Not in dist/page: the build of the page empties its own folder. */
function removeOld() {
  const names = readdirSync(dist, { recursive: true, encoding: 'utf8' })
    .map((name) => name.replaceAll('\\', '/'))
    .filter((name) => /\.(js|ts|map)$/.test(name) && !name.startsWith('page/'));
  for (const name of names) {
    const source = name.replace(/\.(js|d\.ts)$/, '.ts');
    if (!existsSync(new URL(`../src/${source}`, import.meta.url))) rmSync(new URL(name, dist));
  }
}
