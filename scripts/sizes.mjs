// The sizes in the README: of the package, of an installation with its dependencies, and of the producer in a bundle.
// Usage: npm run build && node scripts/sizes.mjs. It writes them into the README; test/unit/package.test.ts fails when
// they are off by more than 10 %.

import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';

import { build } from 'vite';

const root = path.resolve(import.meta.dirname, '..');

/** The table of the README. @param {{ packedBytes: number, unpackedBytes: number }} packed */
export async function sizesTable({ packedBytes, unpackedBytes }) {
  const { packages, bytes } = dependencies();
  const producer = Math.round((await producerBytes()) / 1000);
  return `| what | size |
|---|---|
| the package | ${megabytes(packedBytes)} MB to download, ${megabytes(unpackedBytes)} MB unpacked |
| installed with its ${packages} dependencies | ${megabytes(unpackedBytes + bytes)} MB |
| \`waybill/producer\` in a bundle, minified | ${producer} kB with gzip |
`;
}

/** The packages that npm installs with this one, without optional peers, and the bytes of their files. */
function dependencies() {
  const found = new Set();
  /** @param {string} folder @param {string} name @returns {string | undefined} */
  const placeOf = (folder, name) => {
    const place = path.join(folder, 'node_modules', name);
    if (existsSync(place)) return place;
    return folder === root ? undefined : placeOf(path.dirname(folder), name);
  };
  /** @param {string} folder */
  const visit = (folder) => {
    const manifest = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'));
    const names = { ...manifest.dependencies, ...manifest.optionalDependencies };
    for (const name of Object.keys(names)) {
      const place = placeOf(folder, name);
      // an optional one for another platform
      if (place === undefined || found.has(place)) continue;
      found.add(place);
      visit(place);
    }
  };
  visit(root);
  const bytes = [...found].reduce((sum, place) => sum + bytesIn(place), 0);
  return { packages: found.size, bytes };
}

/** The compressed bytes of everything that `waybill/producer` exports, bundled and minified. */
async function producerBytes() {
  const built = await build({
    configFile: false,
    root,
    logLevel: 'error',
    build: {
      ssr: path.join(root, 'dist/producer/index.js'),
      minify: true,
      write: false,
      rolldownOptions: { output: { codeSplitting: false } },
    },
  });
  const [chunk] = /** @type {import('vite').Rolldown.RolldownOutput} */ (built).output;
  return gzipSync(chunk.code, { level: 9 }).length;
}

/** @param {string} folder @returns {number} */
function bytesIn(folder) {
  return readdirSync(folder, { withFileTypes: true }).reduce((sum, entry) => {
    const file = path.join(folder, entry.name);
    // packages inside are counted on their own
    if (entry.isDirectory()) return sum + (entry.name === 'node_modules' ? 0 : bytesIn(file));
    return sum + statSync(file).size;
  }, 0);
}

/** @param {number} bytes */
function megabytes(bytes) {
  return (bytes / 1e6).toPrecision(2);
}

async function main() {
  const packing = ['pack', '--dry-run', '--json', '--ignore-scripts'];
  const [report] = JSON.parse(execFileSync('npm', packing, { cwd: root, encoding: 'utf8' }));
  const table = await sizesTable({
    packedBytes: report.size,
    unpackedBytes: report.unpackedSize,
  });
  const readme = path.join(root, 'README.md');
  const text = readFileSync(readme, 'utf8');
  writeFileSync(readme, text.replace(/(<!-- sizes -->\n).*?(?=<!-- \/sizes -->)/s, `$1${table}`));
  console.log(table);
}

if (process.argv[1] === new URL(import.meta.url).pathname) await main();
