// Colours of the customer portal: from four colours of a theme, makes all others as a style sheet. Every colour that is
// used for text gets the contrast that WCAG 2.2 requires for level AA, whatever the accent is.

export type PortalColours = {
  /** Buttons, links and what is chosen. */
  accent: string;
  /** The background of the page. */
  ground: string;
  /** The background of panels, fields and dialogs. */
  panel: string;
  text: string;
};

/** Those of dashboard/src/style/base.css. */
export const defaultColours: { light: PortalColours; dark: PortalColours } = {
  light: { accent: '#2f5bd7', ground: '#f5f6f8', panel: '#ffffff', text: '#1a212b' },
  dark: { accent: '#7ea4ff', ground: '#0e1217', panel: '#151a21', text: '#e3e8ef' },
};

/** The colours of states. */
const tones = {
  light: { blue: '#3567d8', green: '#1a8049', amber: '#9c5d00', red: '#c7372f', grey: '#6b7584' },
  dark: { blue: '#6f9bff', green: '#4cc38a', amber: '#e0a33e', red: '#f2766c', grey: '#8a94a3' },
};

/** A little more than needed, because steps are rounded. */
const readableContrast = 4.6;

/** The style sheet for both themes. It comes after the portal's own. */
export function colourSheet(themes: { light: PortalColours; dark: PortalColours }): string {
  const light = declarations(themes.light, tones.light);
  const dark = declarations(themes.dark, tones.dark);
  return [
    `:root{${light}}`,
    `:root[data-theme='dark']{${dark}}`,
    `@media (prefers-color-scheme: dark){:root:not([data-theme='light']){${dark}}}`,
    '',
  ].join('\n');
}

function declarations(theme: PortalColours, states: Record<string, string>): string {
  const { accent, ground, panel, text } = theme;
  const raised = mixed(panel, text, 0.025);
  const chosen = mixed(panel, accent, 0.1);
  const behind = [ground, panel, raised, chosen];
  const colours: Record<string, string> = {
    ground,
    panel,
    text,
    raised,
    line: mixed(panel, text, 0.12),
    'line-strong': mixed(panel, text, 0.24),
    muted: readable(mixed(panel, text, 0.6), text, behind),
    accent: readable(accent, text, behind),
    'accent-ground': chosen,
    brand: accent,
    'on-brand': contrast('#ffffff', accent) >= contrast('#000000', accent) ? '#ffffff' : '#000000',
    ...Object.fromEntries(
      Object.entries(states).map(([name, colour]) => [name, readable(colour, text, behind)]),
    ),
  };
  return Object.entries(colours)
    .map(([name, colour]) => `--${name}:${colour}`)
    .join(';');
}

/** The colour, moved towards that of the text until it can be read on all of these. */
function readable(colour: string, text: string, behind: readonly string[]): string {
  for (let part = 0; part < 1; part += 0.05) {
    const tried = mixed(colour, text, part);
    if (behind.every((each) => contrast(tried, each) >= readableContrast)) return tried;
  }
  return text;
}

function mixed(from: string, to: string, part: number): string {
  const other = channels(to);
  return `#${channels(from)
    .map((value, index) => Math.round(value + ((other[index] ?? 0) - value) * part))
    .map((value) => value.toString(16).padStart(2, '0'))
    .join('')}`;
}

/** The contrast ratio of WCAG 2.2, from 1 to 21. */
export function contrast(one: string, other: string): number {
  const [lighter = 0, darker = 0] = [luminance(one), luminance(other)].toSorted((a, b) => b - a);
  return (lighter + 0.05) / (darker + 0.05);
}

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = channels(colour).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function channels(colour: string): number[] {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}
