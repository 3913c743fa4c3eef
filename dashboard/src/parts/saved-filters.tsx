// Row of saved filters, and the dialog that saves the current ones under a name.

import { useState } from 'preact/hooks';

import { linkTo, usePlace } from '../route.js';
import { removeFilter, saveFilter, useSaved } from '../saved-filters.js';
import { filterText } from '../search-words.js';
import { Dialog } from './dialog.js';

/** The filters of an address, without the position of a page. */
function filtersOf(query: URLSearchParams): URLSearchParams {
  const filters = new URLSearchParams(query);
  filters.delete('next');
  return filters;
}

export function SavedFilters() {
  const { query } = usePlace();
  const saved = useSaved();
  const [saving, setSaving] = useState(false);
  const current = filtersOf(query);
  if (saved.length === 0 && current.size === 0) return null;
  return (
    <div class="saved-filters">
      <ul aria-label="Saved filters">
        {saved.map(({ name, query: text }) => (
          <li key={name}>
            <a
              href={linkTo('messages', new URLSearchParams(text))}
              aria-current={text === current.toString() ? 'true' : undefined}
            >
              {name}
            </a>
            <button
              type="button"
              class="bare"
              aria-label={`Remove ${name}`}
              title={`Remove ${name}`}
              onClick={() => removeFilter(name)}
            >
              ×
            </button>
          </li>
        ))}
      </ul>
      {current.size > 0 && (
        <button type="button" class="small" onClick={() => setSaving(true)}>
          Save filters…
        </button>
      )}
      {saving && <SaveDialog filters={current} close={() => setSaving(false)} />}
    </div>
  );
}

function SaveDialog({ filters, close }: { filters: URLSearchParams; close: () => void }) {
  const [name, setName] = useState('');
  return (
    <Dialog title="Save filters" close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          saveFilter(name.trim(), filters.toString());
          close();
        }}
      >
        <p class="muted">{filterText(Object.fromEntries(filters))}</p>
        <label class="field">
          <span>Name</span>
          <input
            type="text"
            value={name}
            maxLength={60}
            required
            pattern=".*\S.*"
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <footer>
          <button type="button" onClick={close}>
            Not now
          </button>
          <button type="submit" class="primary">
            Save
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
