// The version in package.json. The build puts the text itself here (scripts/embed.mjs), so that a bundle needs no file
// beside it.

import { readFileSync } from 'node:fs';

const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');

export const version = (JSON.parse(text) as { version: string }).version;
