// A message as a destination receives it. The payload travels as text from the database to the wire; only
// a handler that asks for `payload` or `headers` has it parsed, once.

/** The order of the columns that `claim_batch` returns; the row is kept as it came. */
export const column = {
  id: 0,
  claimNo: 1,
  tries: 2,
  alone: 3,
  availableAt: 4,
  createdAt: 5,
  streamId: 6,
  sequence: 7,
  previousSequence: 8,
  namespace: 9,
  topic: 10,
  tenantId: 11,
  key: 12,
  dedupeKey: 13,
  aggregateType: 14,
  aggregateId: 15,
  headers: 16,
  payload: 17,
} as const;

export class ClaimedMessage {
  readonly id: string;
  /** Goes up with every claim and is never reused. */
  readonly claimNo: number;
  readonly topic: string;
  readonly #row: readonly (string | null)[];
  #payload: { value: unknown } | undefined;

  constructor(row: readonly (string | null)[]) {
    this.#row = row;
    this.id = row[column.id] ?? '';
    this.claimNo = Number(row[column.claimNo]);
    this.topic = row[column.topic] ?? '';
  }

  /** The same message, sent once more. */
  again(tries: number): ClaimedMessage {
    return new ClaimedMessage(this.#row.with(column.tries, String(tries)));
  }

  /** False for a delivery whose message is gone: nothing is left to be sent. */
  get exists(): boolean {
    return this.topic !== '';
  }
  /** Claimed by itself, because its last holder died. */
  get alone(): boolean {
    return this.#row[column.alone] === 't';
  }
  /** How often it has been sent, this time included: 1 the first time. */
  get tries(): number {
    return Number(this.#row[column.tries]);
  }
  get availableAtText(): string {
    return this.#row[column.availableAt] ?? '-infinity';
  }
  get createdAt(): Date {
    return new Date(this.#row[column.createdAt] ?? Number.NaN);
  }
  get namespace(): string {
    return this.#row[column.namespace] ?? '';
  }
  get tenantId(): string | null {
    return this.#row[column.tenantId] ?? null;
  }
  get key(): string | null {
    return this.#row[column.key] ?? null;
  }
  /** Names its lane, or null for a message without a key. */
  get streamId(): string | null {
    return this.#row[column.streamId] ?? null;
  }
  /** The place in the order of its key, or null without one. */
  get sequence(): string | null {
    return this.#row[column.sequence] ?? null;
  }
  /** The message of its key before it at this destination: '0' for none; null if a newer one has ended already. */
  get previousSequence(): string | null {
    return this.#row[column.previousSequence] ?? null;
  }
  get dedupeKey(): string | null {
    return this.#row[column.dedupeKey] ?? null;
  }
  get aggregateType(): string | null {
    return this.#row[column.aggregateType] ?? null;
  }
  get aggregateId(): string | null {
    return this.#row[column.aggregateId] ?? null;
  }
  get headersText(): string | null {
    return this.#row[column.headers] ?? null;
  }
  get payloadText(): string {
    return this.#row[column.payload] ?? 'null';
  }
  get headers(): Record<string, string> {
    return this.headersText === null
      ? {}
      : (JSON.parse(this.headersText) as Record<string, string>);
  }
  get payload(): unknown {
    this.#payload ??= { value: JSON.parse(this.payloadText) };
    return this.#payload.value;
  }
}
