// Messages of an endpoint, as the API returns them.

import type { AttemptAt } from '../../listing/attempts.js';
import type { ListedMessage } from '../../listing/message-list.js';

export type EndpointMessage = ListedMessage & { attempts: AttemptAt[] };

export type EndpointMessageDetail = EndpointMessage & {
  /** Null if retention has removed the message. */
  request: SentRequest | null;
};

export type SentRequest = {
  method: string;
  url: string;
  headers: { name: string; value: string }[];
  /** The body, or its beginning if it is long; null if the message is too large to read. */
  body: string | null;
  bodyBytes: number;
  /** The endpoint has headers whose names the server cannot show, because it has no key. */
  hasHiddenHeaders: boolean;
};
