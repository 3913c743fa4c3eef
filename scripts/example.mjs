// Runs one of the worked examples: node scripts/example.mjs NAME. Without DATABASE_URL it starts an embedded
// PostgreSQL for the run and removes it afterwards.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';

const folder = path.resolve(import.meta.dirname, '../examples');
const [name = ''] = process.argv.slice(2);
const main = mainOf(name);

if (!/^[a-z-]+$/.test(name) || main === undefined) {
  const names = readdirSync(folder).filter((each) => mainOf(each) !== undefined);
  console.error(
    `There is no example "${name}". There are: ${names.join(', ')}.\n  $ npm run example -- ${names[0]}`,
  );
  process.exit(2);
}

const given = process.env.DATABASE_URL;
const { startPostgres } = await import('../dist/dev/embedded-postgres.js');
const server = given === undefined ? await startPostgres() : undefined;
try {
  // TypeScript is run with jiti, as configuration files are
  const loader = main.endsWith('.ts') ? ['--import', import.meta.resolve('jiti/register')] : [];
  const child = spawn(process.execPath, [...loader, main], {
    env: { ...process.env, DATABASE_URL: given ?? server?.url },
    stdio: 'inherit',
  });
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
  const [code] = await once(child, 'exit');
  process.exitCode = code ?? 1;
} finally {
  await server?.remove();
}

/** @param {string} example */
function mainOf(example) {
  return ['main.mjs', 'main.ts']
    .map((file) => path.join(folder, example, file))
    .find((file) => existsSync(file));
}
