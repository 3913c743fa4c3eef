// Typed confirmation of bulk changes: shows the plan, and enables the button only after a word of the plan was typed.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

type TypedConfirmationProps = {
  /** The accepted words; any of them is enough. */
  words: readonly [string, ...string[]];
  button: string;
  danger?: boolean;
  start: () => Promise<void>;
  close: () => void;
  /** The label of the cancel button. Default: Not now. */
  back?: string;
  /** The plan. */
  children: ComponentChildren;
};

export function TypedConfirmation(props: TypedConfirmationProps) {
  const { words, button, danger = false, start, close, back = 'Not now', children } = props;
  const [typed, setTyped] = useState('');
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  // the plan arrives after the dialog was opened
  useEffect(() => input.current?.focus(), []);
  const confirmed = words.some((word) => plain(word) === plain(typed));
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!confirmed || busy) return;
        setBusy(true);
        void start().finally(() => setBusy(false));
      }}
    >
      {children}
      <label class="typed">
        Type{' '}
        {words.map((word, index) => (
          <span key={word}>
            {index > 0 && ' or '}
            <b>{word}</b>
          </span>
        ))}{' '}
        to confirm
        <input
          ref={input}
          type="text"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      <footer>
        <button type="button" onClick={close}>
          {back}
        </button>
        <button type="submit" class={danger ? 'danger' : 'primary'} disabled={!confirmed || busy}>
          {button}
        </button>
      </footer>
    </form>
  );
}

/** Without case and spaces: a number may be typed with or without separators. */
function plain(text: string): string {
  return text.replace(/\s/g, '').toLowerCase();
}

/** For a plan that matches nothing. */
export function NothingToDo({
  children,
  button = 'Close',
  close,
}: {
  children: string;
  button?: string;
  close: () => void;
}) {
  return (
    <>
      <p>{children}</p>
      <footer>
        <button type="button" autofocus onClick={close}>
          {button}
        </button>
      </footer>
    </>
  );
}
