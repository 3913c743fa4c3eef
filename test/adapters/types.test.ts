// The compiler's part of the contract: the libraries' own transaction types are accepted without a cast (see
// libraries/), NestJS accepts the module, and a value that is not a handle is refused at compile time.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { describe, expect, test } from 'vitest';

import { createOutbox } from '../../src/index.js';
import { librariesMissing } from './installed.js';

/** Compiled, not run. */
export function refusals(): unknown[] {
  const outbox = createOutbox();
  return [
    // @ts-expect-error no method that runs SQL
    outbox.enqueue({}, { topic: 'a' }),
    // @ts-expect-error an address is no handle
    outbox.enqueue('postgresql://localhost/app', { topic: 'a' }),
    // @ts-expect-error a promise of one is no handle: await was forgotten
    outbox.enqueue(Promise.resolve({ query: () => Promise.resolve([]) }), { topic: 'a' }),
  ];
}

// checking the types of all libraries takes the compiler long on a shared machine
describe.skipIf(librariesMissing() !== null)('types', { timeout: 120_000 }, () => {
  test('M1 the compiler accepts the transactions of all libraries, and the module, without a cast', async () => {
    const compile = promisify(execFile)('node_modules/.bin/tsc', [
      '--noEmit',
      '-p',
      'test/adapters',
    ]);
    const { stdout } = await compile.catch((error: { stdout: string }) => error);
    expect(stdout).toBe('');
  });
});
