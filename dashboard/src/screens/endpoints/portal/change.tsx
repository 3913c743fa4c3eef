// Screens that add and change an endpoint: a form made from the list of fields.

import { useState } from 'preact/hooks';

import { pathOf } from '../answers.js';
import type { Endpoint, OfferedEvents, ShownSecret } from '../answers.js';
import { EventField } from './event-form.js';
import { changesOf, fields } from './fields.js';
import type { Field, FieldValue } from './fields.js';
import { keepNewSecret } from './secret.js';
import { patch, post } from '../../../api.js';
import { useLive } from '../../../live.js';
import { Problem, sentence } from '../../../parts/problem.js';
import { goTo, linkTo } from '../../../route.js';

export function AddEndpoint() {
  const add = async (values: Record<string, unknown>): Promise<string> => {
    const made = await post<ShownSecret>('endpoints', values);
    keepNewSecret(made);
    return made.name;
  };
  return <EndpointForm title="Add an endpoint" button="Add endpoint" endpoint={{}} save={add} />;
}

export function ChangeEndpoint({ name }: { name: string }) {
  const [endpoint, setEndpoint] = useState<Endpoint>();
  const { data, error, refresh } = useLive<Endpoint>(endpoint ? null : pathOf(name));
  // what the form began with stays, whatever changes meanwhile
  if (endpoint === undefined && data !== undefined) setEndpoint(data);
  if (endpoint === undefined) return <Problem error={error} again={refresh} />;
  const change = async (values: Record<string, unknown>): Promise<string> => {
    if (Object.keys(values).length > 0) await patch(pathOf(name), values);
    return name;
  };
  return <EndpointForm title="Edit endpoint" button="Save" endpoint={endpoint} save={change} />;
}

type FormProps = {
  title: string;
  button: string;
  endpoint: Partial<Endpoint>;
  /** Returns the name of the endpoint. */
  save: (values: Record<string, unknown>) => Promise<string>;
};

function EndpointForm({ title, button, endpoint, save }: FormProps) {
  const [before] = useState(() =>
    Object.fromEntries(fields.map(({ name, from }) => [name, from(endpoint)])),
  );
  const [values, setValues] = useState<Record<string, FieldValue>>(before);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const { data } = useLive<OfferedEvents>('events', { everyMs: 600_000 });
  const back =
    endpoint.name === undefined ? '#/' : linkTo(`endpoints/${encodeURIComponent(endpoint.name)}`);
  const named = /^endpoint\.(\w+)/.exec(error?.message ?? '')?.[1];
  const submit = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      const name = await save(changesOf(before, values, endpoint.name === undefined));
      goTo(linkTo(`endpoints/${encodeURIComponent(name)}`));
    } catch (failure) {
      setError(failure as Error);
      setBusy(false);
    }
  };
  const shown = (field: Field) => (
    <FormField
      key={field.name}
      field={field}
      value={values[field.name] ?? ''}
      events={data?.events}
      problem={named === field.name ? error : undefined}
      change={(value) => setValues((now) => ({ ...now, [field.name]: value }))}
    />
  );
  return (
    <>
      <nav class="back" aria-label="Back">
        <a href={back}>← Back</a>
      </nav>
      <header class="screen-head">
        <h1>{title}</h1>
      </header>
      <form
        class="panel endpoint-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy) void submit();
        }}
      >
        {fields.filter(({ advanced }) => !advanced).map(shown)}
        <details class="advanced">
          <summary>More settings</summary>
          {fields.filter(({ advanced }) => advanced).map(shown)}
        </details>
        {!fields.some(({ name }) => name === named) && <Problem error={error} />}
        <footer>
          <a class="button" href={back}>
            Cancel
          </a>
          <button type="submit" class="primary" disabled={busy}>
            {button}
          </button>
        </footer>
      </form>
    </>
  );
}

type FieldProps = {
  field: Field;
  value: FieldValue;
  events: OfferedEvents['events'] | undefined;
  problem: Error | undefined;
  change: (value: FieldValue) => void;
};

function FormField({ field, value, events, problem, change }: FieldProps) {
  const { name, label, hint, kind, required = false, placeholder, choices = [] } = field;
  const about = `about-${name}`;
  const shared = {
    id: `field-${name}`,
    name,
    required,
    'aria-describedby': about,
    'aria-invalid': problem ? ('true' as const) : undefined,
    onInput: (event: { currentTarget: { value: string } }) => change(event.currentTarget.value),
  };
  const text = String(value);
  return (
    <div class="form-field">
      {kind === 'events' ? (
        <EventField
          label={label}
          about={about}
          events={events}
          topics={Array.isArray(value) ? value : []}
          change={change}
        />
      ) : (
        <>
          <label for={shared.id}>
            {label}
            {!required && <span class="muted"> optional</span>}
          </label>
          {kind === 'choice' ? (
            <select {...shared} value={text}>
              {choices.map(([choice, word]) => (
                <option key={choice} value={choice} selected={choice === text}>
                  {word}
                </option>
              ))}
            </select>
          ) : kind === 'lines' ? (
            <textarea {...shared} rows={3} spellcheck={false} value={text} {...{ placeholder }} />
          ) : (
            <input
              {...shared}
              type="text"
              inputmode={kind}
              autocomplete="off"
              value={text}
              {...(placeholder !== undefined && { placeholder })}
            />
          )}
        </>
      )}
      <p class="muted" id={about}>
        {hint}
      </p>
      {problem && (
        <p class="field-problem" role="alert">
          {sentence(problem.message.replace(/^endpoint\./, ''))}
        </p>
      )}
    </div>
  );
}
