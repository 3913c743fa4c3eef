// Row of the saved filters of a screen, and the dialog that saves the current ones under a name.

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
  const { path, query } = usePlace();
  const [screen = ''] = path;
  const saved = useSaved().filter((filter) => filter.screen === screen);
  const [saving, setSaving] = useState(false);
  const current = filtersOf(query);
  if (saved.length === 0 && current.size === 0) return null;
  return (
    <div class="saved-filters">
      <ul aria-label="Saved filters">
        {saved.map((filter) => (
          <li key={filter.name}>
            <a
              href={linkTo(screen, new URLSearchParams(filter.query))}
              aria-current={filter.query === current.toString() ? 'true' : undefined}
            >
              {filter.name}
            </a>
            <button
              type="button"
              class="bare"
              aria-label={`Remove ${filter.name}`}
              title={`Remove ${filter.name}`}
              onClick={() => removeFilter(filter)}
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
      {saving && <SaveDialog screen={screen} filters={current} close={() => setSaving(false)} />}
    </div>
  );
}

type SaveProps = { screen: string; filters: URLSearchParams; close: () => void };

function SaveDialog({ screen, filters, close }: SaveProps) {
  const [name, setName] = useState('');
  return (
    <Dialog title="Save filters" close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          saveFilter({ screen, name: name.trim(), query: filters.toString() });
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
