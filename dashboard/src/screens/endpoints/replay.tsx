// Dialog that sends all messages of an endpoint since a time again, for example after its receiver was down.

import { useState } from 'preact/hooks';

import { pathOf } from './answers.js';
import { post } from '../../api.js';
import { Dialog } from '../../parts/dialog.js';
import { Problem } from '../../parts/problem.js';
import { TimeField } from '../../parts/time-field.js';

const hourMs = 3_600_000;

type ReplayProps = { endpoint: string; close: (started: boolean) => void };

export function ReplayDialog({ endpoint, close }: ReplayProps) {
  const [since, setSince] = useState(() => new Date(Date.now() - hourMs).toISOString());
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const start = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await post(pathOf(endpoint, '/replay'), { since });
      close(true);
    } catch (failure) {
      setError(failure as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Send again" close={() => close(false)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy) void start();
        }}
      >
        <p>
          All events of this endpoint since then are sent again, also those that have arrived. Each
          keeps its webhook-id, by which a receiver can recognise it.
        </p>
        <label class="field">
          <span>Created since</span>
          <TimeField name="since" value={since} change={setSince} />
        </label>
        <Problem error={error} />
        <footer>
          <button type="button" onClick={() => close(false)}>
            Not now
          </button>
          <button type="submit" class="primary" disabled={busy || since === ''}>
            Send again
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
