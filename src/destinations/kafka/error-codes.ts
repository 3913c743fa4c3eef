// Maps error codes of Kafka brokers to outcomes. Only codes decide, never texts; a code that is not listed is retried.
// docs/guides/destinations/kafka.md has the same table.

import { errorText } from '../../core/errors.js';
import { pause, reject, retry } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';

type ErrorCode = {
  readonly name: string;
  readonly kind: 'retry' | 'reject' | 'pause';
  readonly code: string;
  /** The known leader of a partition is outdated: find the leader again, and send once more at once. */
  readonly stale?: true;
  /** The broker will be ready in a moment. */
  readonly soon?: true;
};

export const errorCodes: Readonly<Record<number, ErrorCode>> = {
  [-1]: { name: 'UNKNOWN_SERVER_ERROR', kind: 'retry', code: 'broker_error' },
  2: { name: 'CORRUPT_MESSAGE', kind: 'retry', code: 'broker_error' },
  3: { name: 'UNKNOWN_TOPIC_OR_PARTITION', kind: 'retry', code: 'topic_missing', stale: true },
  5: { name: 'LEADER_NOT_AVAILABLE', kind: 'retry', code: 'leader_unavailable', stale: true },
  6: { name: 'NOT_LEADER_OR_FOLLOWER', kind: 'retry', code: 'leader_unavailable', stale: true },
  7: { name: 'REQUEST_TIMED_OUT', kind: 'retry', code: 'broker_timeout' },
  8: { name: 'BROKER_NOT_AVAILABLE', kind: 'retry', code: 'leader_unavailable', stale: true },
  9: { name: 'REPLICA_NOT_AVAILABLE', kind: 'retry', code: 'leader_unavailable', stale: true },
  10: { name: 'MESSAGE_TOO_LARGE', kind: 'reject', code: 'message_too_large' },
  13: { name: 'NETWORK_EXCEPTION', kind: 'retry', code: 'broker_error' },
  14: { name: 'COORDINATOR_LOAD_IN_PROGRESS', kind: 'retry', code: 'broker_error', soon: true },
  15: { name: 'COORDINATOR_NOT_AVAILABLE', kind: 'retry', code: 'broker_error', soon: true },
  17: { name: 'INVALID_TOPIC_EXCEPTION', kind: 'reject', code: 'topic_invalid' },
  18: { name: 'RECORD_LIST_TOO_LARGE', kind: 'reject', code: 'message_too_large' },
  19: { name: 'NOT_ENOUGH_REPLICAS', kind: 'retry', code: 'replicas_missing' },
  20: { name: 'NOT_ENOUGH_REPLICAS_AFTER_APPEND', kind: 'retry', code: 'replicas_missing' },
  29: { name: 'TOPIC_AUTHORIZATION_FAILED', kind: 'pause', code: 'not_authorized' },
  31: { name: 'CLUSTER_AUTHORIZATION_FAILED', kind: 'pause', code: 'not_authorized' },
  32: { name: 'INVALID_TIMESTAMP', kind: 'reject', code: 'record_invalid' },
  33: { name: 'UNSUPPORTED_SASL_MECHANISM', kind: 'pause', code: 'not_authenticated' },
  34: { name: 'ILLEGAL_SASL_STATE', kind: 'pause', code: 'not_authenticated' },
  35: { name: 'UNSUPPORTED_VERSION', kind: 'pause', code: 'not_supported' },
  43: { name: 'UNSUPPORTED_FOR_MESSAGE_FORMAT', kind: 'pause', code: 'not_supported' },
  45: { name: 'OUT_OF_ORDER_SEQUENCE_NUMBER', kind: 'retry', code: 'producer_replaced' },
  47: { name: 'INVALID_PRODUCER_EPOCH', kind: 'retry', code: 'producer_replaced' },
  56: { name: 'KAFKA_STORAGE_ERROR', kind: 'retry', code: 'leader_unavailable', stale: true },
  58: { name: 'SASL_AUTHENTICATION_FAILED', kind: 'pause', code: 'not_authenticated' },
  59: { name: 'UNKNOWN_PRODUCER_ID', kind: 'retry', code: 'producer_replaced' },
  74: { name: 'FENCED_LEADER_EPOCH', kind: 'retry', code: 'leader_unavailable', stale: true },
  75: { name: 'UNKNOWN_LEADER_EPOCH', kind: 'retry', code: 'leader_unavailable', stale: true },
  76: { name: 'UNSUPPORTED_COMPRESSION_TYPE', kind: 'pause', code: 'not_supported' },
  87: { name: 'INVALID_RECORD', kind: 'reject', code: 'record_invalid' },
  89: { name: 'THROTTLING_QUOTA_EXCEEDED', kind: 'retry', code: 'broker_error' },
  90: { name: 'PRODUCER_FENCED', kind: 'retry', code: 'producer_replaced' },
};

/** Not failures: the batch is stored. The second code says that the same batch had arrived already. */
export const arrived: ReadonlySet<number> = new Set([0, 46]);

const unknownCode = { kind: 'retry', code: 'broker_error' } as const;
const outcomeOf = { retry, reject, pause };

export function brokerOutcome(errorCode: number, detail: string | null = null): Outcome {
  const { kind, code } = errorCodes[errorCode] ?? unknownCode;
  const remoteCode = codeName(errorCode);
  const message = `the broker answered ${remoteCode}${detail === null ? '' : `: ${detail}`}`;
  return outcomeOf[kind]({ code, remoteCode, message });
}

export function codeName(errorCode: number): string {
  return errorCodes[errorCode]?.name ?? String(errorCode);
}

/** For a request that failed as a whole: the broker's code if it gave one, otherwise the connection's. */
export function failureOutcome(error: unknown): Outcome {
  const errorCode = brokerCode(error);
  if (errorCode !== undefined) return brokerOutcome(errorCode);
  const remoteCode = findInCauses(error, 'code', 'string');
  return retry({
    code: 'connection_failed',
    ...(remoteCode !== undefined && { remoteCode }),
    message: innermostText(error),
  });
}

/** The text of the innermost cause: the library's own text says little more than that something failed. */
export function innermostText(error: unknown): string {
  const { errors, cause } = (error ?? {}) as { errors?: unknown[]; cause?: unknown };
  const inner = cause ?? errors?.[0];
  return inner === undefined ? errorText(error) : innermostText(inner);
}

/** The broker's error code, if a broker rejected the request. */
export function brokerCode(error: unknown): number | undefined {
  return findInCauses(error, 'apiCode', 'number');
}

type Found = { number: number; string: string };

/** The innermost value: the library wraps errors, sometimes several times, once for each broker. */
function findInCauses<T extends keyof Found>(
  error: unknown,
  property: string,
  type: T,
): Found[T] | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  const { errors, cause } = error as { errors?: unknown; cause?: unknown };
  const inside = Array.isArray(errors) ? (errors as unknown[]) : [];
  for (const inner of [...inside, cause]) {
    const found = findInCauses(inner, property, type);
    if (found !== undefined) return found;
  }
  const own = (error as Record<string, unknown>)[property];
  return typeof own === type ? (own as Found[T]) : undefined;
}
