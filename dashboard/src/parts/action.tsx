// Action button: runs a request. It is disabled during the request. A toast shows its error, or in a dialog, which is
// above the toast, a text beside the button.

import type { ComponentChildren } from 'preact';
import { useContext, useState } from 'preact/hooks';

import { SessionContext } from '../session.js';
import { Icon } from './icon.js';
import type { IconName } from './icon.js';
import { sentence } from './problem.js';
import { showActionError } from './toast.js';

type ActionProps = {
  label: string;
  icon?: IconName;
  /** Only the icon is shown; the label is its accessible name. */
  bare?: boolean;
  kind?: 'primary' | 'danger';
  /** Why the action is not possible now: the button keeps its place, and is disabled. */
  unavailable?: string | undefined;
  act: () => unknown;
  children?: ComponentChildren;
};

/** Renders nothing for a user who may only read. */
export function Action({ label, icon, bare = false, kind, unavailable, act }: ActionProps) {
  const mayOperate = useMayOperate();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  if (!mayOperate) return null;
  const run = async (inDialog: boolean): Promise<void> => {
    const show = inDialog ? setError : showActionError;
    setBusy(true);
    setError(undefined);
    try {
      await act();
      show(undefined);
    } catch (failure) {
      show(sentence((failure as Error).message));
    }
    setBusy(false);
  };
  return (
    <>
      <button
        type="button"
        class={`action ${bare ? 'bare' : 'small'} ${kind ?? ''}`}
        aria-label={label}
        title={unavailable ?? label}
        // a disabled button would lose the focus
        aria-disabled={busy || unavailable !== undefined}
        onClick={(event) => {
          event.stopPropagation();
          // the second click of a double click may hit the button of the next row, because its own has gone
          if (!busy && unavailable === undefined && event.detail < 2)
            void run(event.currentTarget.closest('dialog') !== null);
        }}
      >
        {icon && <Icon name={icon} />}
        {!bare && label}
      </button>
      {error !== undefined && (
        <span class="action-error" role="alert">
          {error}
        </span>
      )}
    </>
  );
}

/** Whether the user may act on messages of all tenants. */
export function useMayOperateAll(): boolean {
  const { scope, tenantId } = useContext(SessionContext);
  return scope !== 'read' && tenantId === null;
}

export function useMayOperate(): boolean {
  const { scope } = useContext(SessionContext);
  return scope !== 'read';
}
