// No part of Waybill takes an advisory lock: any login of the database could take the same lock, by its number, and
// block relays.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { expect, it } from 'vitest';

it.each(['sql', 'src'])('N8 nothing in %s takes an advisory lock', (folder) => {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) =>
    /\.(sql|ts)$/.test(file),
  );
  expect(files.length).toBeGreaterThan(40);
  const takers = files.filter((file) =>
    /pg_(try_)?advisory/.test(readFileSync(path.join(folder, file), 'utf8')),
  );
  expect(takers).toEqual([]);
});
