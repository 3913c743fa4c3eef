// The texts of all files in sql/, by their path there. The build puts the texts themselves here (scripts/embed.mjs), so
// that a bundle needs no files beside it.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const root = new URL('../../sql/', import.meta.url);

export const sqlTexts: Readonly<Record<string, string>> = Object.fromEntries(
  readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.sql'))
    .map((name) => name.replaceAll(path.sep, '/'))
    .map((name) => [name, readFileSync(new URL(name, root), 'utf8')]),
);
