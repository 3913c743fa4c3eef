// waybill/sqs: the destination for Amazon SQS, without the relay. Its client library is loaded when a relay opens it.

import { untilNamed } from '../until-named.js';
import { sqs as makeSqs } from './sqs.js';

export type { SqsCredentials, SqsOptions } from './sqs.js';

export const sqs: typeof makeSqs = untilNamed(makeSqs);
