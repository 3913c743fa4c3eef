// Icons of the page, drawn inline so that none has to be loaded.

export const iconPaths = {
  overview: 'M3 13h4l3-8 4 14 3-6h4',
  messages: 'M4 6h16M4 12h16M4 18h10',
  destinations: 'M5 12h14M13 6l6 6-6 6',
  relays: 'M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01',
  database: 'M4 6c0-4 16-4 16 0v12c0 4-16 4-16 0zM4 6c0 4 16 4 16 0M4 12c0 4 16 4 16 0',
  retry: 'M20 12a8 8 0 1 1-2.5-5.8M20 3v4h-4',
  replay: 'M11 6v12l-8-6zM21 6v12l-8-6z',
  delete: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  payload: 'M9 5c-3 0-1 6-4 7 3 1 1 7 4 7M15 5c3 0 1 6 4 7-3 1-1 7-4 7',
  pause: 'M8 5v14M16 5v14',
  play: 'M7 5l12 7-12 7z',
  copy: 'M8 8h12v12H8zM4 16V4h12',
  sun: 'M12 8a4 4 0 1 0 4 4 4 4 0 0 0-4-4zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5 19 19M5 19l1.5-1.5M17.5 6.5 19 5',
  moon: 'M20 14A8 8 0 1 1 10 4a6.5 6.5 0 0 0 10 10z',
  send: 'M4 12 20 4l-6 16-3-7z',
  search: 'M11 4a7 7 0 1 0 7 7 7 7 0 0 0-7-7zM16 16l5 5',
  tail: 'M4 5h16M4 9.5h10M4 14h16M4 18.5h7M17 18.5h3',
  skip: 'M5 5l8 7-8 7zM18 5v14',
} as const;

export type IconName = keyof typeof iconPaths;

/** One of the icons above, or one with its own path, in a square of 24. */
export function Icon({
  name,
  path,
}: { name: IconName; path?: never } | { name?: never; path: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={path ?? iconPaths[name]} />
    </svg>
  );
}
