// One connection that all deliveries of a destination share. It is made when it is needed and made again after it
// was lost, so that nothing waits for a broker that is away: whoever needs it meanwhile is told why it failed. A
// call that is given up while the other side says nothing at all takes the connection with it, for a connection
// that is silent may be dead for minutes before anybody else finds out.

/** The other side could not be reached, or the connection broke in the middle; the cause says how. */
export class UnreachableError extends Error {}

type Line<Connection> = { readonly connection: Connection; heardMs: number; lost: boolean };

export type LinkOptions<Connection> = {
  /** `closing` is aborted when nobody wants the connection any more; `lost` is to be called when it broke. */
  connect: (closing: AbortSignal, lost: () => void) => Promise<Connection>;
  /** Ends it at once, without waiting for the other side. */
  end: (connection: Connection) => void;
};

/** After a failure, so long nobody tries again: the next ones get the same answer. */
const quietMs = 200;

export class Link<Connection> {
  readonly #options: LinkOptions<Connection>;
  readonly #closing = new AbortController();
  #line: Promise<Line<Connection>> | undefined;
  #failure: { readonly error: UnreachableError; readonly untilMs: number } | undefined;

  constructor(options: LinkOptions<Connection>) {
    this.#options = options;
  }

  /** Throws the reason of the signal, an `UnreachableError`, or what the work throws. */
  async use<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T> {
    const line = await untilAborted(signal, this.#reach());
    const startedMs = performance.now();
    try {
      return await untilAborted(signal, work(line.connection));
    } catch (error) {
      if (signal.aborted && line.heardMs < startedMs) this.#drop(line);
      if (!signal.aborted && line.lost) throw unreachable(error);
      throw error;
    } finally {
      if (!signal.aborted) line.heardMs = performance.now();
    }
  }

  close(): void {
    this.#closing.abort(new Error('the destination was closed'));
    void this.#line?.then(
      (line) => this.#drop(line),
      () => undefined,
    );
  }

  #reach(): Promise<Line<Connection>> {
    if (this.#closing.signal.aborted)
      return Promise.reject(unreachable(this.#closing.signal.reason));
    if (this.#failure !== undefined && performance.now() < this.#failure.untilMs)
      return Promise.reject(this.#failure.error);
    this.#line ??= this.#connect();
    return this.#line;
  }

  async #connect(): Promise<Line<Connection>> {
    const early = { lost: false };
    let line: Line<Connection> | undefined;
    const lost = (): void => {
      early.lost = true;
      if (line !== undefined) this.#drop(line);
    };
    try {
      const { signal } = this.#closing;
      const connection = await this.#options.connect(signal, lost);
      line = { connection, heardMs: performance.now(), lost: false };
      if (early.lost || signal.aborted) {
        this.#drop(line);
        throw signal.aborted ? signal.reason : new Error('the connection broke at once');
      }
      return line;
    } catch (cause) {
      const error = unreachable(cause);
      this.#line = undefined;
      this.#failure = { error, untilMs: performance.now() + quietMs };
      throw error;
    }
  }

  #drop(line: Line<Connection>): void {
    if (line.lost) return;
    line.lost = true;
    this.#line = undefined;
    this.#options.end(line.connection);
  }
}

function unreachable(cause: unknown): UnreachableError {
  return cause instanceof UnreachableError
    ? cause
    : new UnreachableError('the other side cannot be reached', { cause });
}

/** The promise, or the signal's reason if that comes first; the promise may then end as it likes. */
export function untilAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    const forget = (): void => signal.removeEventListener('abort', abort);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort);
    promise.then(resolve, reject).finally(forget);
  });
}
