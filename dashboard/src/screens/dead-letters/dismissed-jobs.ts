// Finished jobs whose results the user has dismissed. This browser keeps them; other users still see the results.

import { useState } from 'preact/hooks';

import { browserStorage } from '../../browser-storage.js';

const storedAs = 'waybill-dismissed-jobs';
/** More than are shown at a time. */
const mostKept = 20;

function readDismissed(): readonly string[] {
  return browserStorage()?.getItem(storedAs)?.split(' ') ?? [];
}

export function useDismissed() {
  const [dismissed, setDismissed] = useState(readDismissed);
  const dismiss = (id: string): void => {
    const ids = [id, ...dismissed].slice(0, mostKept);
    browserStorage()?.setItem(storedAs, ids.join(' '));
    setDismissed(ids);
  };
  return { dismissed: new Set(dismissed), dismiss };
}
