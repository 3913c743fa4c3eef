// Keys of the page, and where the focus goes: on another screen to its heading, so that the next key acts there.

import { useEffect, useRef } from 'preact/hooks';

/** The keys, for the dialog that lists them. The tables and charts handle their own. */
export const keys: readonly (readonly [key: string, action: string])[] = [
  ['Ctrl-K', 'opens the command palette'],
  ['/', 'goes to the search box or the first filter'],
  ['j', 'goes to the first row of the list; in the list, to the next row'],
  ['k', 'goes to the row above'],
  ['↑ ↓', 'moves between rows'],
  ['Enter', 'opens what has the focus, applies a filter'],
  ['← →', 'moves along a chart; with Shift, selects a time'],
  ['Enter in a chart', 'zooms into the selected time, else opens the messages behind the moment'],
  ['Esc', 'closes a dialog without doing anything'],
  ['?', 'shows this list'],
];

/** `/` goes to the first filter, `j` to the first row of the list, and `?` shows the keys. */
export function useKeys(showKeys: () => void): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      const { target } = event;
      const isTaken =
        event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isText(target);
      if (isTaken || document.querySelector('dialog[open]') !== null) return;
      const goal =
        event.key === '/' ? firstFilter() : event.key === 'j' && !isRow(target) ? firstRow() : null;
      if (event.key === '?') showKeys();
      else if (goal === null) return;
      event.preventDefault();
      goal?.focus();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
}

/** Whether the element takes typed text, so that letters are not shortcuts. */
export function isText(target: EventTarget | null): boolean {
  return (
    target instanceof Element &&
    target.matches('input:not([type=checkbox], [type=radio]), select, textarea')
  );
}

/** A table moves between its rows itself. */
function isRow(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest('main tbody') !== null;
}

function firstFilter(): HTMLElement | null {
  return document.querySelector('[data-first-filter]');
}

/** The link of the first row: of the screen's main table, or of its first one. */
function firstRow(): HTMLElement | null {
  const table =
    document.querySelector('main table[data-main]') ?? document.querySelector('main table');
  const row = table?.querySelector('tbody:not([inert]) tr');
  return row?.querySelector<HTMLElement>('a') ?? row?.querySelector('button, input') ?? null;
}

/** Moves the focus to the heading of the screen, or to its beginning while it loads. */
export function focusContent(): void {
  const goal = document.querySelector<HTMLElement>('main h1') ?? document.querySelector('main');
  if (goal === null) return;
  goal.tabIndex = -1;
  goal.focus({ preventScroll: true });
}

/**
 * Moves the focus to the heading when another screen opens. A changed filter is the same screen. A user who is typing keeps
 * the focus.
 */
export function useScreenFocus(screen: string): void {
  const before = useRef(screen);
  useEffect(() => {
    if (before.current === screen) return;
    before.current = screen;
    const isBusy =
      document.querySelector('dialog[open]') !== null || isText(document.activeElement);
    if (!isBusy) focusContent();
  }, [screen]);
}
