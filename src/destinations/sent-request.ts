// Sent request: the HTTP request of a webhook as operators see it, without secrets. Types only.

/** Without secrets. */
export type SentRequest = {
  method: string;
  url: string;
  headers: { name: string; value: string }[];
  /** The body, or its beginning if it is long; null if the message is too large to read. */
  body: string | null;
  bodyBytes: number;
  /** There are more headers, whose names are not known here. */
  hasHiddenHeaders: boolean;
};

/** `reason`: why there is no request; null if there is one. `kind`: that of the destination. */
export type ShownRequest = {
  kind: string | null;
  request: SentRequest | null;
  reason: string | null;
};
