// A button that does something on the server: it is off while that is under way, and says beside it what went wrong.

import type { ComponentChildren } from 'preact';
import { useContext, useState } from 'preact/hooks';

import { SessionContext } from '../session.js';
import { Icon } from './icon.js';
import type { IconName } from './icon.js';
import { sentence } from './problem.js';

type ActionProps = {
  label: string;
  icon?: IconName;
  /** The sign alone; the label is its name. */
  bare?: boolean;
  kind?: 'primary' | 'danger';
  act: () => unknown;
  children?: ComponentChildren;
};

/** Nothing at all for somebody who may only read. */
export function Action({ label, icon, bare = false, kind, act }: ActionProps) {
  const mayOperate = useMayOperate();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  if (!mayOperate) return null;
  const run = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await act();
    } catch (failure) {
      setError(sentence((failure as Error).message));
    }
    setBusy(false);
  };
  return (
    <>
      <button
        type="button"
        class={`action ${bare ? 'bare' : 'small'} ${kind ?? ''}`}
        aria-label={label}
        title={label}
        disabled={busy}
        onClick={(event) => {
          event.stopPropagation();
          void run();
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

/** On more than the messages of one tenant. */
export function useMayOperateAll(): boolean {
  const { scope, tenantId } = useContext(SessionContext);
  return scope !== 'read' && tenantId === null;
}

export function useMayOperate(): boolean {
  const { scope } = useContext(SessionContext);
  return scope !== 'read';
}
