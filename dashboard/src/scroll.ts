// Scroll positions: Back returns to where the user was, although lists are loaded again. Another screen, or another page
// of a list, begins at its top.

import { placeOf } from './route.js';

/** How long a list may take to load until its position is given up. */
const withinMs = 5000;

const positions = new Map<number, number>();
let last = 0;
let stop: () => void = () => undefined;

/** Each entry of the browser's history gets a number in its state. */
function numberOfEntry(): number | undefined {
  const { state } = history as { state: { entry?: number } | null };
  return state?.entry;
}

function beginEntry(): number {
  // also after a reload, when older entries have numbers already
  last = Math.max(last, Date.now()) + 1;
  history.replaceState({ entry: last }, '');
  return last;
}

export function keepScroll(): void {
  history.scrollRestoration = 'manual';
  let entry = numberOfEntry() ?? beginEntry();
  let screen = screenOf(location.hash);
  addEventListener('hashchange', () => {
    positions.set(entry, scrollY);
    const before = screen;
    const known = numberOfEntry();
    screen = screenOf(location.hash);
    entry = known ?? beginEntry();
    if (known !== undefined) scrollWhenLoaded(positions.get(known) ?? 0);
    else if (screen !== before) scrollWhenLoaded(0);
  });
  for (const input of ['wheel', 'touchmove', 'keydown', 'pointerdown'])
    addEventListener(input, () => stop(), { passive: true });
}

function screenOf(hash: string): string {
  const { path, query } = placeOf(hash);
  return `${path.join('/')} ${query.get('next') ?? ''}`;
}

/** Scrolls in every frame until the tables are loaded and long enough, or the user does something. */
function scrollWhenLoaded(top: number): void {
  const until = performance.now() + withinMs;
  let frame = 0;
  const step = (): void => {
    scrollTo(0, top);
    const loading = document.querySelector('main [aria-busy=true]') !== null;
    const there = Math.abs(scrollY - top) <= 1;
    if ((!there || loading) && performance.now() < until) frame = requestAnimationFrame(step);
  };
  stop();
  stop = () => cancelAnimationFrame(frame);
  // the next screen is rendered before the next frame
  frame = requestAnimationFrame(() => {
    frame = requestAnimationFrame(step);
  });
}
