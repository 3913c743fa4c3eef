// Draft of a field: what the user has typed and not yet entered. Live data renders the screen again every few seconds,
// and would otherwise put the old value back while the user types.

import { useEffect, useState } from 'preact/hooks';

type InputEvent = { currentTarget: HTMLInputElement };

/** `clears` counts how often the fields were cleared: each time, the draft is dropped. */
export function useDraft(value: string, change: (value: string) => void, clears = 0) {
  const [draft, setDraft] = useState<string>();
  useEffect(() => setDraft(undefined), [value, clears]);
  return {
    value: draft ?? value,
    onInput: ({ currentTarget }: InputEvent) => setDraft(currentTarget.value),
    onChange: ({ currentTarget }: InputEvent) => change(currentTarget.value),
  };
}
