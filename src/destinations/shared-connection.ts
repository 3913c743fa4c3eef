// Shared connection: one connection for all deliveries of a destination, made on demand and made again after it was
// lost. A delivery waits for one try to connect at most; shortly after a failed try, it gets that error at once. A call
// that is aborted while the other side sends nothing at all closes the connection, because a silent connection may be
// dead for minutes before another call notices.

/** The other side could not be reached, or the connection broke; `cause` has the reason. */
export class UnreachableError extends Error {}

type Opened<Connection> = { readonly connection: Connection; heardMs: number; lost: boolean };

export type SharedConnectionOptions<Connection> = {
  /** `closing` is aborted when the connection is no longer needed; `lost` must be called when it broke. */
  connect: (closing: AbortSignal, lost: () => void) => Promise<Connection>;
  /** Closes it at once, without waiting for the other side. */
  end: (connection: Connection) => void;
};

/** After a failure, calls get the same error for this long, without a new try. */
const quietMs = 200;

export class SharedConnection<Connection> {
  readonly #options: SharedConnectionOptions<Connection>;
  readonly #closing = new AbortController();
  #opened: Promise<Opened<Connection>> | undefined;
  #failure: { readonly error: UnreachableError; readonly untilMs: number } | undefined;

  constructor(options: SharedConnectionOptions<Connection>) {
    this.#options = options;
  }

  /** Throws the reason of the signal, an `UnreachableError`, or the error of the work. */
  async use<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T> {
    const opened = await untilAborted(signal, this.#reach());
    const startedMs = performance.now();
    try {
      return await untilAborted(signal, work(opened.connection));
    } catch (error) {
      if (signal.aborted && opened.heardMs < startedMs) this.#drop(opened);
      if (!signal.aborted && opened.lost) throw unreachable(error);
      throw error;
    } finally {
      if (!signal.aborted) opened.heardMs = performance.now();
    }
  }

  close(): void {
    this.#closing.abort(new Error('the destination was closed'));
    void this.#opened?.then(
      (opened) => this.#drop(opened),
      () => undefined,
    );
  }

  #reach(): Promise<Opened<Connection>> {
    if (this.#closing.signal.aborted)
      return Promise.reject(unreachable(this.#closing.signal.reason));
    if (this.#failure !== undefined && performance.now() < this.#failure.untilMs)
      return Promise.reject(this.#failure.error);
    this.#opened ??= this.#connect();
    return this.#opened;
  }

  async #connect(): Promise<Opened<Connection>> {
    const early = { lost: false };
    let opened: Opened<Connection> | undefined;
    const lost = (): void => {
      early.lost = true;
      if (opened !== undefined) this.#drop(opened);
    };
    try {
      const { signal } = this.#closing;
      const connection = await this.#options.connect(signal, lost);
      opened = { connection, heardMs: performance.now(), lost: false };
      if (early.lost || signal.aborted) {
        this.#drop(opened);
        throw signal.aborted ? signal.reason : new Error('the connection broke at once');
      }
      return opened;
    } catch (cause) {
      const error = unreachable(cause);
      this.#opened = undefined;
      this.#failure = { error, untilMs: performance.now() + quietMs };
      throw error;
    }
  }

  #drop(opened: Opened<Connection>): void {
    if (opened.lost) return;
    opened.lost = true;
    this.#opened = undefined;
    this.#options.end(opened.connection);
  }
}

function unreachable(cause: unknown): UnreachableError {
  return cause instanceof UnreachableError
    ? cause
    : new UnreachableError('the other side cannot be reached', { cause });
}

/** Returns the promise's result, or throws the signal's reason if that comes first; the promise is then ignored. */
export function untilAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    const forget = (): void => signal.removeEventListener('abort', abort);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort);
    promise.then(resolve, reject).finally(forget);
  });
}
