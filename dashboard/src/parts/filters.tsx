// Filters with their values in the address, so that they survive a reload and can be shared as a link. A change takes
// effect when the field loses focus, or on Enter; until then, a typed text is marked.

import { useEffect, useId, useState } from 'preact/hooks';

import { goTo, linkTo, usePlace } from '../route.js';
import { useSuggestions } from '../suggestions.js';
import { useDraft } from './draft.js';
import { TimeField } from './time-field.js';

export type Filter = {
  name: string;
  label: string;
  /** The choices, by value and label; without them, any text. */
  choices?: readonly (readonly [value: string, word: string])[];
  /** The word for none of the choices. Default `any`. */
  none?: string;
  type?: 'text' | 'datetime-local';
  /** What completes a typed text: the known values that begin with it. */
  completes?: 'topics' | 'destinations' | 'tenants';
  /** Shown only on request, or if it has a value. */
  rare?: boolean;
};

/** The same number as in style/parts.css. */
const shownOnPhone = 2;

export function Filters({ path, filters }: { path: string; filters: readonly Filter[] }) {
  const { query } = usePlace();
  const isSet = ({ name }: Filter): boolean => Boolean(query.get(name));
  const [all, setAll] = useState(false);
  /** The text field whose text is not applied yet. */
  const [typed, setTyped] = useState<string>();
  const [clears, setClears] = useState(0);
  const address = query.toString();
  useEffect(() => setTyped(undefined), [address]);
  const set = filters.filter(isSet).length;
  const change = (name: string, value: string): void => {
    // the browser went elsewhere: a field that it leaves behind must not bring it back
    if (!location.hash.startsWith(`#/${path}`)) return;
    const changed = new URLSearchParams(query);
    if (value.trim() === '') changed.delete(name);
    else changed.set(name, value.trim());
    // a page position belongs to the filters that it was made with
    changed.delete('next');
    goTo(linkTo(path, changed));
  };
  return (
    <form
      class={`filters ${all ? 'all' : ''}`}
      role="search"
      aria-label="Filters"
      onSubmit={(event) => event.preventDefault()}
      onInput={({ target }) => {
        if (target instanceof HTMLInputElement && target.type === 'text')
          setTyped(
            target.value.trim() === (query.get(target.name) ?? '') ? undefined : target.name,
          );
      }}
    >
      {filters.map((filter, index) => (
        <label
          key={filter.name}
          class={`${filter.rare && !isSet(filter) ? 'rare' : ''} ${filter.name === typed ? 'unapplied' : ''}`}
        >
          <span>{filter.label}</span>
          <Field
            filter={filter}
            first={index === 0}
            value={query.get(filter.name) ?? ''}
            clears={clears}
            change={(value) => change(filter.name, value)}
          />
        </label>
      ))}
      <div class="filter-buttons">
        <button
          type="button"
          hidden={filters.length <= shownOnPhone}
          class={`small ${filters.some(({ rare }) => rare) ? '' : 'for-phone'}`}
          aria-expanded={all}
          onClick={() => setAll(!all)}
        >
          {all ? 'Fewer' : 'More'}
        </button>
        {(set > 0 || typed !== undefined) && (
          <a
            class="button small"
            href={linkTo(path)}
            // the field keeps the focus, and does not apply its text first
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => {
              setClears(clears + 1);
              setTyped(undefined);
            }}
          >
            Clear {set > 0 && set}
          </a>
        )}
        <span class="unseen" aria-live="polite">
          {typed !== undefined && 'Press Enter to apply the filter.'}
        </span>
      </div>
    </form>
  );
}

type FieldProps = {
  filter: Filter;
  first: boolean;
  value: string;
  clears: number;
  change: (value: string) => void;
};

function Field({ filter, first, ...field }: FieldProps) {
  const { value, change } = field;
  const marked = first ? { 'data-first-filter': true } : {};
  if (filter.choices !== undefined)
    return (
      <select
        {...marked}
        name={filter.name}
        value={value}
        onChange={(event) => change(event.currentTarget.value)}
      >
        <option value="">{filter.none ?? 'any'}</option>
        {filter.choices.map(([choice, word]) => (
          <option key={choice} value={choice} selected={choice === value}>
            {word}
          </option>
        ))}
      </select>
    );
  if (filter.type === 'datetime-local')
    return <TimeField {...marked} {...field} name={filter.name} />;
  return <TextField {...marked} {...field} filter={filter} />;
}

function TextField({ filter, value, clears, change, ...rest }: Omit<FieldProps, 'first'>) {
  const { name, completes } = filter;
  const draft = useDraft(value, change, clears);
  const list = useId();
  const isTyped = draft.value !== value;
  const { known } = useSuggestions(completes !== undefined && isTyped ? draft.value : '');
  return (
    <>
      <input
        {...rest}
        {...draft}
        {...(completes && { list })}
        name={name}
        type="text"
        autocomplete="off"
        spellcheck={false}
      />
      {completes && (
        <datalist id={list}>
          {known[completes].map((completion) => (
            <option key={completion} value={completion} />
          ))}
        </datalist>
      )}
    </>
  );
}
