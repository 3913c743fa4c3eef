// Toast: the error of the last action, over the screen, so that it is readable and moves nothing. It stays until it is
// dismissed, the next action succeeds, or another screen is opened.

import { useEffect, useState } from 'preact/hooks';

let show: (text: string | undefined) => void = () => undefined;

/** Shows the error of an action; undefined removes that of an earlier one. */
export function showActionError(text: string | undefined): void {
  show(text);
}

export function Toast() {
  const [text, setText] = useState<string>();
  useEffect(() => {
    const clear = (): void => setText(undefined);
    show = setText;
    addEventListener('hashchange', clear);
    return () => removeEventListener('hashchange', clear);
  }, []);
  if (text === undefined) return null;
  return (
    <div class="problem toast" role="alert">
      <span>{text}</span>
      <button type="button" class="small" onClick={() => setText(undefined)}>
        Dismiss
      </button>
    </div>
  );
}
