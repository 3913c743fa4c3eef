// Form of a replay: which messages, and to which destination. Replaying everything needs its own check box.

import { useState } from 'preact/hooks';

import type { Destination } from '../../answers.js';
import { TimeField } from '../../parts/time-field.js';

export type Asked = {
  destination: string;
  perSecond: number;
  ids?: string[];
  topic?: string;
  key?: string;
  tenantId?: string;
  namespace?: string;
  since?: string;
  until?: string;
  all?: boolean;
};

type ReplayFormProps = {
  form: Asked;
  destinations: readonly Destination[];
  change: (form: Asked) => void;
  submit: () => Promise<void>;
  close: () => void;
};

const texts = [
  ['topic', 'Topic', 'order.* for every topic that begins with order.'],
  ['key', 'Key', ''],
  ['tenantId', 'Tenant', ''],
  ['namespace', 'Namespace', ''],
] as const;

export function ReplayForm({ form, destinations, change, submit, close }: ReplayFormProps) {
  const [busy, setBusy] = useState(false);
  const names = new Set([form.destination, ...destinations.map(({ name }) => name)]);
  const set = (name: keyof Asked, value: string): void => {
    const { [name]: _, ...others } = form;
    change((value === '' ? others : { ...others, [name]: value }) as Asked);
  };
  const { destination, perSecond, all, until, ids, ...narrowing } = form;
  const narrowed = ids !== undefined || Object.keys(narrowing).length > 0;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        setBusy(true);
        void submit().finally(() => setBusy(false));
      }}
    >
      <label class="field">
        <span>To which destination</span>
        <select
          required
          autofocus
          value={destination}
          onChange={(event) => change({ ...form, destination: event.currentTarget.value })}
        >
          {[...names].map((name) => (
            <option key={name} value={name} selected={name === destination}>
              {name === '' ? 'choose one' : name}
            </option>
          ))}
        </select>
      </label>
      {ids !== undefined ? (
        <p>
          The message <code>{ids.join(', ')}</code>
        </p>
      ) : (
        <div class="fields">
          {texts.map(([name, label, hint]) => (
            <label key={name} class="field">
              <span>{label}</span>
              <input
                type="text"
                name={name}
                autocomplete="off"
                spellcheck={false}
                placeholder={hint}
                value={form[name] ?? ''}
                onInput={(event) => set(name, event.currentTarget.value)}
              />
            </label>
          ))}
          <label class="field">
            <span>Created from</span>
            <TimeField
              name="since"
              value={form.since ?? ''}
              change={(value) => set('since', value)}
            />
          </label>
          <label class="field">
            <span>Created before (now, if empty)</span>
            <TimeField name="until" value={until ?? ''} change={(value) => set('until', value)} />
          </label>
        </div>
      )}
      <label class="field short">
        <span>Most messages per second</span>
        <input
          type="number"
          min={1}
          max={1_000_000}
          required
          value={perSecond}
          onInput={(event) => change({ ...form, perSecond: event.currentTarget.valueAsNumber })}
        />
      </label>
      {!narrowed && (
        <label class="tick">
          <input
            type="checkbox"
            required
            checked={all ?? false}
            onChange={(event) => change({ ...form, all: event.currentTarget.checked })}
          />{' '}
          All messages that the destination has had, or that its routes match
        </label>
      )}
      <footer>
        <button type="button" onClick={close}>
          Not now
        </button>
        <button type="submit" class="primary" disabled={busy}>
          {busy ? 'Counting…' : 'Plan'}
        </button>
      </footer>
    </form>
  );
}
