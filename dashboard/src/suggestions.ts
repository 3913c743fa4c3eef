// Topics, destinations and tenants that the database knows, by their beginning, and the fields of payloads that can be
// searched, while the user types.

import { useEffect, useState } from 'preact/hooks';

import { get, withQuery } from './api.js';
import type { Known } from './search-words.js';

/** A user who types asks once, at the end of a word. */
const waitMs = 120;
/** As the server limits it. */
const longest = 255;

const nothing: Known = { topics: [], destinations: [], tenants: [], payloadFields: [] };

/** `busy`: they belong to an earlier text, and are about to change. */
export function useSuggestions(text: string): { known: Known; busy: boolean } {
  const [found, setFound] = useState<{ of: string; known: Known }>({ of: '', known: nothing });
  // `order.*` suggests the topics that it stands for
  const beginning = text.replace(/\*$/, '');
  const asks = beginning !== '' && beginning.length <= longest;
  useEffect(() => {
    if (!asks) return undefined;
    const stop = new AbortController();
    const ask = async (): Promise<void> => {
      let known = nothing;
      try {
        known = await get<Known>(withQuery('suggestions', { text: beginning }), stop.signal);
      } catch {
        // without suggestions, the text can still be searched
      }
      if (!stop.signal.aborted) setFound({ of: beginning, known });
    };
    const timer = window.setTimeout(() => void ask(), waitMs);
    return () => {
      stop.abort();
      window.clearTimeout(timer);
    };
  }, [beginning, asks]);
  if (!asks) return { known: nothing, busy: false };
  return { known: found.known, busy: found.of !== beginning };
}
