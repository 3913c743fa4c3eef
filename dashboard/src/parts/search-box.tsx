// Search box of the list of messages: one field for ids, words with a meaning such as `status:dead`, and free text, for
// which it offers meanings. A search is added to the filters that are set.

import { useState } from 'preact/hooks';

import { goTo, linkTo, usePlace } from '../route.js';
import { meaningsOf, readWords } from '../search-words.js';
import type { Meaning } from '../search-words.js';
import { useSuggestions } from '../suggestions.js';
import { Combobox } from './combobox.js';
import type { Option } from './combobox.js';

/** The options of a text; `before` are the filters that are set already. `setText` completes the text. */
export function useSearchOptions(
  text: string,
  setText: (text: string) => void,
  before: URLSearchParams,
  taken: () => void,
): { options: Option[]; busy: boolean; problem: string | undefined } {
  const words = readWords(text);
  const { known, busy } = useSuggestions(words.free);
  const options = meaningsOf(words, known).map((meaning) => ({
    key: `${meaning.kind} ${meaning.value}`,
    kind: meaning.kind,
    value: meaning.value,
    take: () => {
      if ('completed' in meaning) {
        // a text that begins a field is one word
        const others = text.split(' ').filter((word) => word !== words.free && word !== '');
        setText([...others, meaning.completed].join(' '));
        return;
      }
      taken();
      goTo(linkOf(meaning, before));
    },
  }));
  return { options, busy, problem: words.problem };
}

function linkOf(meaning: Exclude<Meaning, { completed: string }>, before: URLSearchParams): string {
  if ('messageId' in meaning) return linkTo(`messages/${meaning.messageId}`);
  const query = new URLSearchParams(before);
  // a page position belongs to the filters that it was made with
  query.delete('next');
  for (const [name, value] of Object.entries(meaning.filters)) query.set(name, value);
  return linkTo('messages', query);
}

export function SearchBox() {
  const { query } = usePlace();
  const [text, setText] = useState('');
  const { options, busy, problem } = useSearchOptions(text, setText, query, () => setText(''));
  return (
    <div class="search-box">
      <Combobox
        label="Search"
        placeholder="Search: an id, a topic, status:dead, key:…, tenant:…, http:500"
        text={text}
        setText={setText}
        options={options}
        busy={busy}
        problem={problem}
        first
      />
    </div>
  );
}
