// The customer portal as files: its page with the configured name and logo, and the style sheet of its colours. Its
// policy lets only the listed origins show it in a frame.

import { colourSheet } from './portal-colours.js';
import { resolvePortalOptions } from './portal-options.js';
import type { Logo, ResolvedPortalOptions } from './portal-options.js';

export type PortalFile = { readonly type: string; readonly body: Uint8Array<ArrayBuffer> };

/** What the page reads from its own head before it shows anything. */
export type PortalSettings = {
  name: string;
  /** The addresses of the logos, relative to the page. */
  logo: string | null;
  logoDark: string | null;
  /** The origins that may send it a new token. */
  embeddedBy: readonly string[];
};

/** The files of the portal by path, from the built page. */
export function portalFiles(
  page: string,
  {
    name,
    logo,
    logoDark,
    colours,
    embeddedBy = [],
  }: ResolvedPortalOptions = resolvePortalOptions(),
): Map<string, PortalFile> {
  const settings: PortalSettings = {
    name,
    logo: logo || logoDark ? './portal/logo' : null,
    logoDark: logoDark ? './portal/logo-dark' : null,
    embeddedBy,
  };
  const head = [
    `<title>${escaped(name)}</title>`,
    `<meta name="portal" content="${escaped(JSON.stringify(settings))}" />`,
    `<link rel="icon" href="${settings.logo ?? 'data:,'}" />`,
    ...(colours ? ['<link rel="stylesheet" href="./portal/colours.css" />'] : []),
  ].join('\n    ');
  const files = new Map<string, PortalFile>([
    [
      '/portal',
      textFile('text/html; charset=utf-8', page.replace('</head>', `  ${head}\n  </head>`)),
    ],
  ]);
  const usual: Logo | undefined = logo ?? logoDark;
  if (usual) files.set('/portal/logo', usual);
  if (logoDark) files.set('/portal/logo-dark', logoDark);
  if (colours)
    files.set('/portal/colours.css', textFile('text/css; charset=utf-8', colourSheet(colours)));
  return files;
}

function textFile(type: string, text: string): PortalFile {
  return { type, body: new Uint8Array(new TextEncoder().encode(text)) };
}

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
