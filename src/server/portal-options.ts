// Options of the customer portal: its name, logo and colours, the pages that may embed it, and the topics it offers.

import { readFileSync } from 'node:fs';
import path from 'node:path';

import { errorText } from '../core/errors.js';
import { checkOptions, list, optional, refuse, text } from '../core/options.js';
import { topicKind } from '../core/route.js';
import { origin } from './origin.js';
import { contrast, defaultColours } from './portal-colours.js';
import type { PortalColours } from './portal-colours.js';

export type PortalOptions = {
  /** The name in the head and in the title. Default `Webhooks`. */
  name?: string;
  /** The file of the logo: SVG, PNG or WebP, at most 256 KiB. Default: none. */
  logo?: string;
  /** The file of the logo for the dark theme. Default: `logo`. */
  logoDark?: string;
  /** The colours of the light and of the dark theme. Default: those of Waybill. */
  colours?: { light?: Partial<PortalColours>; dark?: Partial<PortalColours> };
  /** The origins whose pages may show the portal in a frame. Default: none. */
  embeddedBy?: readonly string[];
  /** The topics that customers can choose from the typed events of the configuration. Default: all. */
  topics?: readonly string[];
};

export type ResolvedPortalOptions = ReturnType<typeof resolvePortalOptions>;

const largestLogoBytes = 256 * 1024;
const logoTypes: Record<string, string> = {
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.webp': 'image/webp',
};
/** The least contrast of text, as WCAG 2.2 requires it for level AA. */
const leastContrast = 4.5;

export function resolvePortalOptions(options: PortalOptions = {}) {
  return checkOptions('server.portal', options, {
    name: text({
      default: 'Webhooks',
      pattern: /^[^\p{Cc}]{1,60}$/u,
      meaning: 'a name of 1 to 60 characters',
    }),
    logo: optional(logo),
    logoDark: optional(logo),
    colours: (name: string, value: unknown) =>
      value === undefined
        ? undefined
        : checkOptions(name, value as object, {
            light: theme(defaultColours.light),
            dark: theme(defaultColours.dark),
          }),
    embeddedBy: optional(list(origin, { min: 1, max: 20 })),
    topics: optional(list(topicKind, { min: 1, max: 1000 })),
  });
}

export type Logo = { readonly type: string; readonly body: Uint8Array<ArrayBuffer> };

function logo(name: string, value: unknown): Logo {
  const type = typeof value === 'string' ? logoTypes[path.extname(value).toLowerCase()] : undefined;
  if (type === undefined) refuse(name, value, 'give a file that ends with .svg, .png or .webp');
  let body: Uint8Array<ArrayBuffer>;
  try {
    body = new Uint8Array(readFileSync(value as string));
  } catch (error) {
    return refuse(name, value, `the file cannot be read: ${errorText(error)}`);
  }
  if (body.length > largestLogoBytes)
    refuse(name, value, `the file has ${body.length} bytes: give at most ${largestLogoBytes}`);
  return { type, body };
}

const colour = text({ pattern: /^#[0-9a-f]{6}$/i, meaning: 'a colour such as #2f5bd7' });

/** Any accent works, because what is written in it or on it is adjusted. Text must be readable as it is given. */
function theme(usual: PortalColours) {
  return (name: string, value: unknown): PortalColours => {
    const given = checkOptions(name, value ?? {}, {
      accent: optional(colour),
      ground: optional(colour),
      panel: optional(colour),
      text: optional(colour),
    });
    const chosen = {
      accent: given.accent ?? usual.accent,
      ground: given.ground ?? usual.ground,
      panel: given.panel ?? usual.panel,
      text: given.text ?? usual.text,
    };
    for (const behind of ['ground', 'panel'] as const) {
      const found = contrast(chosen.text, chosen[behind]);
      if (found < leastContrast)
        refuse(
          `${name}.text`,
          chosen.text,
          `its contrast on ${behind} ${chosen[behind]} is ${found.toFixed(1)}, and at least ${leastContrast} is needed to read it`,
        );
    }
    return chosen;
  };
}
