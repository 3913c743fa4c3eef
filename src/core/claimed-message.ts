// Claimed message: a message as a destination receives it. The payload stays text from the database to the wire. It
// is parsed once, and only if a handler reads `payload`.

/** The order of the columns that `claim_batch` returns; the row is kept as it came. */
export const column = {
  id: 0,
  claimNo: 1,
  tries: 2,
  quarantined: 3,
  availableAt: 4,
  createdAt: 5,
  keyId: 6,
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
  expired: 18,
} as const;

export class ClaimedMessage {
  readonly id: string;
  /** Rises with every claim and is never reused. */
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

  /** False for a delivery whose message is gone, so nothing can be sent. */
  get exists(): boolean {
    return this.topic !== '';
  }
  /** False for a message that is too large to read: it came without its payload. */
  get readable(): boolean {
    return (this.#row[column.payload] ?? null) !== null;
  }
  /** It was too old for its destination when it was claimed. */
  get expired(): boolean {
    return this.#row[column.expired] === 't';
  }
  /** Claimed alone, because its last lease expired. */
  get quarantined(): boolean {
    return this.#row[column.quarantined] === 't';
  }
  /** How often the message has been sent, this time included: 1 the first time. */
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
  /** The id of the key, which names the lane; null for a message without a key. */
  get keyId(): string | null {
    return this.#row[column.keyId] ?? null;
  }
  /** The number of the message within its key; null without a key. */
  get sequence(): string | null {
    return this.#row[column.sequence] ?? null;
  }
  /**
   * The sequence of the previous message of this key at this destination: '0' for none, null if a newer one has
   * ended already.
   */
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
