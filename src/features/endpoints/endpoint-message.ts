// Messages of an endpoint, as the API returns them.

import type { SentRequest } from '../../destinations/sent-request.js';
import type { AttemptAt } from '../../listing/attempts.js';
import type { ListedMessage } from '../../listing/message-list.js';

export type EndpointMessage = ListedMessage & { attempts: AttemptAt[] };

export type EndpointMessageDetail = EndpointMessage & {
  /** Null if retention has removed the message. */
  request: SentRequest | null;
};
