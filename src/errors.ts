// Every error that Waybill throws, each with a stable string code. A message names the field or option,
// shows the value and says what to do about it.

export class WaybillError extends Error {
  readonly code: string;

  constructor(code: string, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** A message that cannot be enqueued, or looked up in the inbox; nothing was inserted. */
export class MessageRefusedError extends WaybillError {
  readonly field: string;
  readonly #problem: string;

  constructor(field: string, problem: string, options?: { cause?: unknown }) {
    super('message_refused', `${field} ${problem}`, options);
    this.field = field;
    this.#problem = problem;
  }

  /** The same, said of one in a list. */
  at(index: number): MessageRefusedError {
    const { cause } = this;
    return new MessageRefusedError(`messages[${index}].${this.field}`, this.#problem, { cause });
  }
}

/** The handle given is not inside a transaction; `remedy` says why it must be, and what to do. */
export class NoTransactionError extends WaybillError {
  constructor(what: string, remedy: string) {
    super('no_transaction', `${what}: ${remedy}`);
  }
}

/** A message out of order, refused by an inbox that was told to; nothing was processed. */
export class SequenceGapError extends WaybillError {
  constructor(problem: string) {
    super(
      'sequence_gap',
      `${problem}. Nothing was processed: let it be delivered again later, or leave out onGap: 'throw' to go on.`,
    );
  }
}

/** A configuration that cannot be used, found before anything starts. */
export class ConfigurationError extends WaybillError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('configuration_invalid', message, options);
  }
}

/** A sealed secret that cannot be opened here: its key is not among those given, or it is not what was sealed. */
export class SealedSecretError extends WaybillError {
  readonly reason: 'unknown_key' | 'damaged';

  constructor(reason: 'unknown_key' | 'damaged', message: string, options?: { cause?: unknown }) {
    super('secret_sealed', message, options);
    this.reason = reason;
  }
}

export class MigrationError extends WaybillError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('migration_refused', message, options);
  }
}

/** The schema is older than the program that is to work with it. */
export class SchemaOutdatedError extends WaybillError {
  constructor(schema: string, version: string, lacking: string) {
    super(
      'schema_outdated',
      `the schema ${schema} is older than Waybill ${version} (it lacks ${lacking}): run waybill migrate up with this version first; relays of the version before go on meanwhile`,
    );
  }
}

/** The schema works with newer relays only: this one was refused at its start, or by a heartbeat, and has stopped. */
export class RelayTooOldError extends WaybillError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('relay_too_old', message, options);
  }
}

/** Rows that row level security hides from this login would be taken for rows that are gone. */
export class HiddenRowsError extends WaybillError {
  constructor(tables: readonly string[], login: string) {
    super(
      'rows_hidden',
      `row level security hides rows of ${tables.join(', ')} from ${login}, and what is hidden looks as if it were deleted: verify with a login that has the role auditor, control or owner`,
    );
  }
}

/** A database call that did not answer in time; its connection was destroyed. */
export class DeadlineError extends WaybillError {
  constructor(what: string, deadlineMs: number) {
    super('deadline_exceeded', `${what} did not answer within ${deadlineMs} ms`);
  }
}

/** The value as it may appear in an error: on one line, shortened. */
export function shown(value: unknown, maxLength = 60): string {
  let text: string;
  if (typeof value === 'string') text = JSON.stringify(value);
  else if (typeof value === 'function') text = `function ${value.name || '(anonymous)'}`;
  else if (typeof value === 'object' && value !== null) text = describeObject(value);
  else text = String(value);
  return text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
}

function describeObject(value: object): string {
  try {
    return JSON.stringify(value) ?? Object.prototype.toString.call(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

export function errorText(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(errorText).join('; ');
  }
  return error instanceof Error ? error.message : String(error);
}
