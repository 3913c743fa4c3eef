// Command palette: goes to screens, messages, topics, destinations and saved filters, and does what the menu does, all from
// the keyboard.

import { useEffect, useState } from 'preact/hooks';

import type { Entry } from './entry.js';
import { usePause } from './live.js';
import { Combobox } from './parts/combobox.js';
import type { Option } from './parts/combobox.js';
import { Dialog } from './parts/dialog.js';
import { useSearchOptions } from './parts/search-box.js';
import { goTo, linkTo } from './route.js';
import { useSaved } from './saved-filters.js';
import { readWords } from './search-words.js';
import { useTheme } from './theme.js';
import { zoneName } from './zone.js';
import type { Zone } from './zone.js';
import { isUuid } from '../../src/core/uuid.js';

type PaletteProps = {
  /** The screens that the user may open. */
  entries: readonly Entry[];
  zone: Zone;
  toggleZone: () => void;
  showKeys: () => void;
  close: () => void;
};

const noFilters = new URLSearchParams();

export function Palette(props: PaletteProps) {
  const [text, setText] = useState('');
  const commands = useCommands(props);
  const search = useSearchOptions(text, setText, noFilters, props.close);
  const words = readWords(text);
  const wanted = text.trim().toLowerCase();
  const fitting = commands.filter(({ words: all }) => all.toLowerCase().includes(wanted));
  // a text with a meaning of its own is a search
  const isSearch = Object.keys(words.filters).length > 0 || isUuid(words.free);
  return (
    <Dialog title="Commands" close={props.close}>
      <Combobox
        label="Command"
        placeholder="A screen, an action, a message id, a topic, status:dead …"
        text={text}
        setText={setText}
        options={isSearch ? search.options : [...fitting, ...search.options]}
        busy={search.busy && fitting.length === 0}
        problem={search.problem}
        open
      />
    </Dialog>
  );
}

type Command = Option & { words: string };

function useCommands({ entries, zone, toggleZone, showKeys, close }: PaletteProps): Command[] {
  const [theme, toggleTheme] = useTheme();
  const [paused, togglePaused] = usePause();
  const saved = useSaved();
  const other = zone === 'UTC' ? 'local' : 'UTC';
  const command = (kind: string, value: string, act: () => void): Command => ({
    key: `${kind} ${value}`,
    kind,
    value,
    words: `${kind} ${value}`,
    take() {
      close();
      act();
    },
  });
  return [
    ...entries.map(({ path, name }) => command('Go to', name, () => goTo(linkTo(path)))),
    ...saved.flatMap(({ screen, name, query }) =>
      entries
        .filter(({ path }) => path === screen)
        .map((entry) =>
          command('Saved filters', `${entry.name}: ${name}`, () =>
            goTo(linkTo(screen, new URLSearchParams(query))),
          ),
        ),
    ),
    command('Action', theme === 'dark' ? 'Use the light theme' : 'Use the dark theme', toggleTheme),
    command('Action', `Show times in ${zoneName(other)}`, toggleZone),
    command('Action', paused ? 'Resume live updates' : 'Pause live updates', togglePaused),
    command('Action', 'Show the keyboard shortcuts', showKeys),
  ];
}

/** Whether the palette is open. Ctrl-K or Cmd-K opens and closes it, unless another dialog is open. */
export function usePalette(): [boolean, (open: boolean) => void] {
  const [isOpen, setIsOpen] = useState(false);
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.altKey)
        return;
      event.preventDefault();
      setIsOpen((before) => !before && document.querySelector('dialog[open]') === null);
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
  return [isOpen, setIsOpen];
}
