// Errors of a receiver: a request that it refuses, with the status of the answer.

import { WaybillError } from '../core/errors.js';

/** A request that was not accepted. Nothing was processed. */
export class RequestRefusedError extends WaybillError {
  /** The HTTP status of the answer. */
  readonly status: 400 | 401 | 413;

  constructor(status: 400 | 401 | 413, message: string) {
    super('request_refused', message);
    this.status = status;
  }
}
