// Events of a tail: what happened to messages, in the form in which it is shown.

export const tailEvents = [
  'enqueued',
  'delivered',
  'retrying',
  'dead',
  'released',
  'zombie_requeue',
  'discarded',
] as const;

export type TailEvent = {
  event: (typeof tailEvents)[number];
  at: Date;
  messageId: string;
  /** Null for `enqueued`. */
  destination: string | null;
  namespace: string | null;
  topic: string | null;
  tenantId: string | null;
  key: string | null;
  sequence: string | null;
  claimNo: number | null;
  tries: number | null;
  latencyMs: number | null;
  errorCode: string | null;
  remoteCode: string | null;
  error: string | null;
  reference: string | null;
};

export type TailWindow = {
  /** By time; the newest ones if there are too many. */
  events: TailEvent[];
  /** Matching events that are not included. */
  more: number;
  /** The window was larger than one look can read, so some entries were not read. */
  unseen: boolean;
};
