// Saved filters: names that the user gives to the filters of a screen. This browser keeps them.

import { useEffect, useState } from 'preact/hooks';

import { browserStorage } from './browser-storage.js';

/** `screen` is the address of the list, such as `dead-letters`. */
export type SavedFilter = { screen: string; name: string; query: string };

const storedAs = 'waybill-filters';
const changed = new EventTarget();

export function readSaved(): SavedFilter[] {
  try {
    const kept: unknown = JSON.parse(browserStorage()?.getItem(storedAs) ?? '[]');
    // those without a screen were saved when only the list of messages had them
    return Array.isArray(kept)
      ? kept.map((value: object) => ({ screen: 'messages', ...value })).filter(isSaved)
      : [];
  } catch {
    return [];
  }
}

function isSaved(value: unknown): value is SavedFilter {
  const { screen, name, query } = value as Partial<SavedFilter>;
  return [screen, name, query].every((text) => typeof text === 'string');
}

function write(saved: readonly SavedFilter[]): void {
  browserStorage()?.setItem(storedAs, JSON.stringify(saved));
  changed.dispatchEvent(new Event('change'));
}

/** A name that the screen has already gets the new filters. */
export function saveFilter(saved: SavedFilter): void {
  write([...othersThan(saved), saved].toSorted((one, other) => (one.name < other.name ? -1 : 1)));
}

export function removeFilter(saved: SavedFilter): void {
  write(othersThan(saved));
}

function othersThan({ screen, name }: SavedFilter): SavedFilter[] {
  return readSaved().filter((saved) => saved.screen !== screen || saved.name !== name);
}

/** The saved filters of all screens, also if another window changes them. */
export function useSaved(): SavedFilter[] {
  const [saved, setSaved] = useState(readSaved);
  useEffect(() => {
    const read = (): void => setSaved(readSaved());
    changed.addEventListener('change', read);
    addEventListener('storage', read);
    return () => {
      changed.removeEventListener('change', read);
      removeEventListener('storage', read);
    };
  }, []);
  return saved;
}
