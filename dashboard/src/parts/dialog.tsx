// Dialog over the page. The browser's dialog element closes it on Esc, traps the focus and restores it.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import { Problem } from './problem.js';

type DialogProps = {
  title: string;
  close: () => void;
  wide?: boolean;
  children: ComponentChildren;
};

export function Dialog({ title, close, wide = false, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? 'wide' : ''}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => {
        if (event.target === element.current) close();
      }}
    >
      <div class="dialog-body">
        <header>
          <h2>{title}</h2>
          <button type="button" class="quiet" aria-label="Close" onClick={close}>
            ×
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

export type Question = {
  title: string;
  text: ComponentChildren;
  /** The label of the button. */
  button: string;
  danger?: boolean;
  act: () => Promise<unknown>;
};

/** Asks for confirmation, acts, and shows an error if that fails. */
function Confirm({ question, close }: { question: Question; close: (done: boolean) => void }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const act = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await question.act();
      close(true);
    } catch (failure) {
      setError(failure as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title={question.title} close={() => close(false)}>
      <div class="dialog-text">{question.text}</div>
      <Problem error={error} />
      <footer>
        <button type="button" onClick={() => close(false)}>
          Not now
        </button>
        <button
          type="button"
          class={question.danger ? 'danger' : 'primary'}
          disabled={busy}
          onClick={() => void act()}
        >
          {question.button}
        </button>
      </footer>
    </Dialog>
  );
}

/** One question at a time; `answered` is called when the dialog is closed, with whether the action was done. */
export function useQuestion(answered: (done: boolean) => void) {
  const [question, setQuestion] = useState<Question>();
  const close = (done: boolean): void => {
    setQuestion(undefined);
    answered(done);
  };
  return {
    ask: setQuestion,
    asking: question !== undefined,
    dialog: question && <Confirm question={question} close={close} />,
  };
}
