// Saved filters of the list of messages: names that the user gives to filters. This browser keeps them.

import { useEffect, useState } from 'preact/hooks';

import { browserStorage } from './browser-storage.js';

export type SavedFilter = { name: string; query: string };

const storedAs = 'waybill-filters';
const changed = new EventTarget();

export function readSaved(): SavedFilter[] {
  try {
    const kept: unknown = JSON.parse(browserStorage()?.getItem(storedAs) ?? '[]');
    return Array.isArray(kept) ? kept.filter(isSaved) : [];
  } catch {
    return [];
  }
}

function isSaved(value: unknown): value is SavedFilter {
  const { name, query } = (value ?? {}) as Partial<SavedFilter>;
  return typeof name === 'string' && typeof query === 'string';
}

function write(saved: readonly SavedFilter[]): void {
  browserStorage()?.setItem(storedAs, JSON.stringify(saved));
  changed.dispatchEvent(new Event('change'));
}

/** A name that exists gets the new filters. */
export function saveFilter(name: string, query: string): void {
  const others = readSaved().filter((saved) => saved.name !== name);
  write([...others, { name, query }].toSorted((one, other) => (one.name < other.name ? -1 : 1)));
}

export function removeFilter(name: string): void {
  write(readSaved().filter((saved) => saved.name !== name));
}

/** The saved filters, also if another window changes them. */
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
