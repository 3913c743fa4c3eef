// The built files of the page and of the customer portal: read once, served from memory. Requests look files up in a
// map and never on disk, so path traversal is impossible. Texts are kept compressed too.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';

import type { ResolvedServerOptions } from './options.js';
import { portalFiles } from './portal.js';
import type { PortalFile } from './portal.js';

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};

/** Allows only Waybill's own scripts and styles, and no frame around the page but those of these origins. */
const policyOf = (embeddedBy: readonly string[] = []): string =>
  [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    `frame-ancestors ${embeddedBy.length === 0 ? "'none'" : embeddedBy.join(' ')}`,
  ].join('; ');

type Served = PortalFile & { policy: string; zipped?: Uint8Array<ArrayBuffer> };

export class Page {
  readonly #files = new Map<string, Served>();

  constructor(
    directory: string,
    { embeddedBy, portal }: Partial<Pick<ResolvedServerOptions, 'embeddedBy' | 'portal'>> = {},
  ) {
    if (!existsSync(directory)) return;
    const policy = policyOf(embeddedBy);
    const portalPolicy = policyOf(portal?.embeddedBy);
    for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const file = path.join(entry.parentPath, entry.name);
      const type = types[path.extname(file)];
      if (type === undefined) continue;
      const name = `/${path.relative(directory, file).split(path.sep).join('/')}`;
      const body = new Uint8Array(readFileSync(file));
      if (name !== '/portal.html') this.#add(name, { body, type, policy });
      else
        for (const [place, made] of portalFiles(new TextDecoder().decode(body), portal))
          this.#add(place, { ...made, policy: portalPolicy });
    }
  }

  #add(name: string, file: Served): void {
    const isText = /^text\/|svg/.test(file.type);
    const zipped = isText && { zipped: new Uint8Array(gzipSync(file.body, { level: 9 })) };
    this.#files.set(name, { ...file, ...zipped });
  }

  get exists(): boolean {
    return this.#files.has('/index.html');
  }

  /** Returns the file, or index.html, which shows the screen of the path. `encodings`: those that the client accepts. */
  answer(asked: string, encodings = ''): Response {
    // its addresses are relative to the path without the slash; a browser keeps the fragment
    if (asked === '/portal/')
      return new Response(null, { status: 308, headers: { location: '../portal' } });
    const named = this.#files.get(asked);
    const file = named ?? this.#files.get('/index.html');
    if (file === undefined)
      return Response.json({ error: 'the page was not built' }, { status: 404 });
    const hashed = named !== undefined && asked.startsWith('/assets/');
    const zipped = /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/.test(encodings)
      ? file.zipped
      : undefined;
    return new Response(zipped ?? file.body, {
      headers: {
        ...(file.zipped && { vary: 'accept-encoding' }),
        ...(zipped && { 'content-encoding': 'gzip' }),
        'content-type': file.type,
        'content-security-policy': file.policy,
        // the names of assets contain a hash of their content
        'cache-control': hashed ? 'public, max-age=31536000, immutable' : 'no-cache',
      },
    });
  }
}
