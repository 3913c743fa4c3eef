// Field with a list of options below it. The arrow keys choose, Enter takes the chosen one, Esc closes the list. The first
// option is chosen from the beginning. Enter waits while the options of the text are still being loaded.

import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';

export type Option = {
  key: string;
  kind: string;
  value: ComponentChildren;
  take: () => void;
};

type ComboboxProps = {
  label: string;
  placeholder: string;
  text: string;
  setText: (text: string) => void;
  options: readonly Option[];
  /** More options are about to arrive. */
  busy?: boolean;
  /** Instead of the options: what is wrong with the text. */
  problem?: string | undefined;
  /** The list is shown without the focus too, as in a dialog. */
  open?: boolean;
  /** `/` goes to it. */
  first?: boolean;
};

export function Combobox(props: ComboboxProps) {
  const { label, placeholder, text, setText, options, busy = false, problem, open, first } = props;
  const id = useId();
  const list = useRef<HTMLUListElement>(null);
  /** By its key: other options may still arrive before it. */
  const [chosen, setChosen] = useState<string>();
  const [isShown, setIsShown] = useState(false);
  const entered = useRef(false);
  const index = Math.max(
    0,
    options.findIndex(({ key }) => key === chosen),
  );
  const isOpen = open === true || (isShown && text.trim() !== '');
  const hasList = isOpen && problem === undefined && options.length > 0;
  const take = (option: Option | undefined): void => {
    entered.current = false;
    if (option === undefined || problem !== undefined) return;
    setIsShown(false);
    setChosen(undefined);
    option.take();
  };
  useEffect(() => {
    if (entered.current && !busy) take(options[index]);
  }, [busy, text]);
  useEffect(() => {
    list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' });
  }, [index]);
  const keyDown = (event: KeyboardEvent): void => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setIsShown(true);
      setChosen(options.at((index + step) % options.length)?.key);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      entered.current = true;
      if (!busy) take(options[index]);
    } else if (event.key === 'Escape' && open !== true && isOpen) {
      event.preventDefault();
      setIsShown(false);
    }
  };
  return (
    <div class="combobox">
      <input
        type="text"
        role="combobox"
        aria-label={label}
        aria-expanded={hasList}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        {...(hasList && { 'aria-activedescendant': `${id}-${index}` })}
        {...(first && { 'data-first-filter': true })}
        autofocus={open === true}
        autocomplete="off"
        spellcheck={false}
        placeholder={placeholder}
        value={text}
        onInput={(event) => {
          entered.current = false;
          setChosen(undefined);
          setIsShown(true);
          setText(event.currentTarget.value);
        }}
        onKeyDown={keyDown}
        onFocus={() => setIsShown(true)}
        onBlur={() => setIsShown(false)}
      />
      <ul
        ref={list}
        id={`${id}-list`}
        role="listbox"
        aria-label="Suggestions"
        hidden={!hasList}
        // the field keeps the focus
        onPointerDown={(event) => event.preventDefault()}
      >
        {options.map((option, place) => (
          <li
            key={option.key}
            id={`${id}-${place}`}
            role="option"
            aria-selected={place === index}
            onClick={() => take(option)}
            onPointerMove={() => setChosen(option.key)}
          >
            <span class="option-kind">{option.kind}</span>
            <span class="option-value">{option.value}</span>
          </li>
        ))}
      </ul>
      {isOpen && problem !== undefined && (
        <p class="combobox-problem" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}
