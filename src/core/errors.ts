// Errors: every error that Waybill throws, each with a stable string code. A message names the field or option,
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

  /** The same error for one message in a list. */
  at(index: number): MessageRefusedError {
    const { cause } = this;
    return new MessageRefusedError(`messages[${index}].${this.field}`, this.#problem, { cause });
  }
}

/** No route and no cursor wants the message, and the outbox refuses such messages; nothing was inserted. */
export class UnroutedMessageError extends WaybillError {
  readonly topic: string;

  constructor(topic: string, of: string, index: number | undefined) {
    const which = index === undefined ? 'the topic' : `messages[${index}], topic`;
    super(
      'message_unrouted',
      `no route matches ${which} ${shown(topic, 300)} (${of}), and no cursor reads it. Nothing was enqueued: add a route for it to the configuration and start a relay with that, or leave out unrouted: 'refuse', and the message waits for a route.`,
    );
    this.topic = topic;
  }
}

/** The handle is not inside a transaction; `remedy` says why it must be, and what to do. */
export class NoTransactionError extends WaybillError {
  constructor(what: string, remedy: string) {
    super('no_transaction', `${what}: ${remedy}`);
  }
}

/** A message out of order, refused by an inbox with `onGap: 'throw'`; nothing was processed. */
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

/** A sealed secret that cannot be opened: its key is not among the given ones, or its text was damaged. */
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

/** The database has no such schema: it was not migrated, it is another database, or the schema has another name. */
export class SchemaMissingError extends WaybillError {
  constructor(schema: string, options?: { cause?: unknown }) {
    super(
      'schema_missing',
      `this database has no schema ${schema}: run npx waybill migrate up with the address of this database in DATABASE_URL; if the schema has another name, give it as the option schema`,
      options,
    );
  }
}

/** The schema is older than this program. */
export class SchemaOutdatedError extends WaybillError {
  constructor(schema: string, version: string, lacking: string, options?: { cause?: unknown }) {
    super(
      'schema_outdated',
      `the schema ${schema} is older than Waybill ${version} (it lacks ${lacking}): run npx waybill migrate up with this version first; relays of the version before go on meanwhile`,
      options,
    );
  }
}

/** The login of this connection lacks a role. */
export class NoRightsError extends WaybillError {
  constructor(schema: string, callee: string, role: string, options?: { cause?: unknown }) {
    super(
      'rights_missing',
      `the login of this connection may not call ${callee} of the schema ${schema}: grant it the role ${role}, as in GRANT waybill_${role} TO its_login; npx waybill roles install makes the roles, and npx waybill roles show has their names`,
      options,
    );
  }
}

/** The schema works only with newer relays: this one was refused at its start, or by a heartbeat, and has stopped. */
export class RelayTooOldError extends WaybillError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('relay_too_old', message, options);
  }
}

/** The relay is running or draining, and was not stopped. */
export class RelayBusyError extends WaybillError {
  constructor(what: string) {
    super(
      'relay_busy',
      `${what}() was called while this relay runs: stop it first; to wait until nothing is due, call catchUp()`,
    );
  }
}

/** The relay was not started, so there is nothing to wait for. */
export class RelayNotStartedError extends WaybillError {
  constructor(what: string) {
    super(
      'relay_not_started',
      `${what}() was called before start(): start the relay first, or call drain()`,
    );
  }
}

/** Row level security hides rows from this login, which verification would report as deleted. */
export class HiddenRowsError extends WaybillError {
  constructor(tables: readonly string[], login: string) {
    super(
      'rows_hidden',
      `row level security hides rows of ${tables.join(', ')} from ${login}, and hidden rows look as if they were deleted: verify with a login that has the role auditor, control or owner`,
    );
  }
}

/** The database is read-only, and was still so after the startup wait. */
export class DatabaseReadOnlyError extends WaybillError {
  constructor(isStandby: boolean) {
    super(
      'database_read_only',
      isStandby
        ? 'the database is read-only, because this server is a standby: give the address of the primary (DATABASE_URL), or promote it'
        : 'the database is read-only: switch default_transaction_read_only off for this login, or give the address of the primary (DATABASE_URL)',
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

/** The code of an error: Waybill's own, PostgreSQL's or the system's. */
export function errorCode(error: unknown): string | undefined {
  const { code, errors } = (error ?? {}) as { code?: unknown; errors?: unknown[] };
  if (typeof code === 'string') return code;
  // a host name with several addresses, all of which failed
  return Array.isArray(errors) && errors.length > 0 ? errorCode(errors[0]) : undefined;
}

export function errorText(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(errorText).join('; ');
  }
  return error instanceof Error ? error.message : String(error);
}
