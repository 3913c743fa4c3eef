// Maps answers of SQS to outcomes. Its codes decide, by the table below. For a code that is not listed, SQS says
// whether the entry itself is at fault; a request without an answer is sent again.

import type { BatchResultErrorEntry, SendMessageBatchResultEntry } from '@aws-sdk/client-sqs';

import { errorText } from '../../core/errors.js';
import { delivered, pause, reject, retry } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';

const kinds = { retry, reject, pause };

/** Codes without the prefix `AWS.SimpleQueueService.` and the suffix `Exception`: SQS gives them in several forms. */
const codes: Record<string, readonly [keyof typeof kinds, string]> = {
  QueueDoesNotExist: ['retry', 'queue_missing'],
  NonExistentQueue: ['retry', 'queue_missing'],
  QueueDeletedRecently: ['retry', 'queue_missing'],
  AccessDenied: ['pause', 'not_authorized'],
  NotAuthorized: ['pause', 'not_authorized'],
  InvalidSecurity: ['pause', 'not_authorized'],
  InvalidClientTokenId: ['pause', 'not_authenticated'],
  UnrecognizedClient: ['pause', 'not_authenticated'],
  SignatureDoesNotMatch: ['pause', 'not_authenticated'],
  IncompleteSignature: ['pause', 'not_authenticated'],
  MissingAuthenticationToken: ['pause', 'not_authenticated'],
  OptInRequired: ['pause', 'not_authorized'],
  // expired credentials are renewed, by the SDK or by the application
  ExpiredToken: ['retry', 'not_authenticated'],
  RequestExpired: ['retry', 'not_authenticated'],
  CredentialsProviderError: ['retry', 'not_authenticated'],
  KmsAccessDenied: ['pause', 'encryption_failed'],
  KmsDisabled: ['pause', 'encryption_failed'],
  KmsInvalidKeyUsage: ['pause', 'encryption_failed'],
  KmsNotFound: ['pause', 'encryption_failed'],
  KmsOptInRequired: ['pause', 'encryption_failed'],
  KmsInvalidState: ['retry', 'encryption_failed'],
  KmsThrottled: ['retry', 'throttled'],
  RequestThrottled: ['retry', 'throttled'],
  Throttling: ['retry', 'throttled'],
  TooManyRequests: ['retry', 'throttled'],
  OverLimit: ['retry', 'throttled'],
  InternalError: ['retry', 'destination_unavailable'],
  InternalFailure: ['retry', 'destination_unavailable'],
  ServiceUnavailable: ['retry', 'destination_unavailable'],
  RequestTimeout: ['retry', 'destination_unavailable'],
  InvalidMessageContents: ['reject', 'content_refused'],
  InvalidParameterValue: ['reject', 'content_refused'],
  InvalidAttributeValue: ['reject', 'content_refused'],
  MissingParameter: ['reject', 'content_refused'],
  ValidationError: ['reject', 'content_refused'],
  MessageTooLong: ['reject', 'message_too_large'],
  BatchRequestTooLong: ['reject', 'message_too_large'],
  RequestEntityTooLarge: ['reject', 'message_too_large'],
};

/** FIFO queues return a sequence number too. */
export function taken({ MessageId, SequenceNumber }: SendMessageBatchResultEntry): Outcome {
  return delivered([MessageId, SequenceNumber].filter((part) => part !== undefined).join('/'));
}

/** One entry of a successful request was rejected. */
export function entryFailed({
  Code = '',
  SenderFault,
  Message = '',
}: BatchResultErrorEntry): Outcome {
  const [kind, code] = codes[plain(Code)] ?? [
    SenderFault === true ? 'reject' : 'retry',
    SenderFault === true ? 'content_refused' : 'sqs_error',
  ];
  return kinds[kind]({ code, remoteCode: Code, message: Message });
}

/** The whole request failed, or no answer came. */
export function requestFailed(error: unknown): Outcome {
  const {
    name = '',
    code,
    $fault,
  } = (error ?? {}) as {
    name?: string;
    code?: unknown;
    $fault?: unknown;
  };
  const message = error === undefined ? 'SQS did not answer for this message' : errorText(error);
  const known = codes[plain(name)];
  if (known !== undefined) return kinds[known[0]]({ code: known[1], remoteCode: name, message });
  if ($fault !== undefined) return retry({ code: 'sqs_error', remoteCode: name, message });
  const remoteCode = typeof code === 'string' ? code : name;
  return retry({ code: 'connection_failed', ...(remoteCode !== '' && { remoteCode }), message });
}

function plain(code: string): string {
  return code.replace(/^AWS\.SimpleQueueService\./, '').replace(/Exception$/, '');
}
