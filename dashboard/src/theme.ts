// Theme: light or dark, as the system prefers until the user chooses. The choice is stored in this browser.

import { useEffect, useState } from 'preact/hooks';

import { browserStorage } from './browser-storage.js';

export type Theme = 'light' | 'dark';

const name = 'waybill-theme';
const changes = new EventTarget();

function chosen(): Theme | null {
  const kept = browserStorage()?.getItem(name);
  return kept === 'light' || kept === 'dark' ? kept : null;
}

function ofSystem(): Theme {
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

export function applyTheme(theme: Theme | null = chosen()): void {
  if (theme === null) delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme;
}

/** The theme that is applied, or that of the system. */
function shown(): Theme {
  const applied = document.documentElement.dataset['theme'];
  return applied === 'light' || applied === 'dark' ? applied : ofSystem();
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(shown);
  useEffect(() => {
    const changed = (): void => setTheme(shown());
    changes.addEventListener('change', changed);
    return () => changes.removeEventListener('change', changed);
  }, []);
  const toggle = (): void => {
    const other = theme === 'dark' ? 'light' : 'dark';
    browserStorage()?.setItem(name, other);
    applyTheme(other);
    changes.dispatchEvent(new Event('change'));
  };
  return [theme, toggle];
}
