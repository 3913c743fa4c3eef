// Title of the browser's tab.

import { useEffect } from 'preact/hooks';

/** Undefined leaves the title as it is. */
export function useTitle(words: string | undefined): void {
  useEffect(() => {
    if (words !== undefined) document.title = `${words} · Waybill`;
  }, [words]);
}
