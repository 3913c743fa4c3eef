// Message headers, the same for every broker: the headers of the application, and Waybill's own with the prefix
// `waybill-`. A header of the application never replaces one of Waybill's.

import type { ClaimedMessage } from './claimed-message.js';

export function messageHeaders(message: ClaimedMessage): Record<string, string> {
  const { tenantId, key, sequence, dedupeKey, aggregateType, aggregateId } = message;
  return {
    ...message.headers,
    'waybill-id': message.id,
    'waybill-topic': message.topic,
    'waybill-namespace': message.namespace,
    'waybill-created-at': message.createdAt.toISOString(),
    ...(tenantId !== null && { 'waybill-tenant': tenantId }),
    ...(key !== null && { 'waybill-key': key }),
    ...(sequence !== null && { 'waybill-sequence': sequence }),
    ...(dedupeKey !== null && { 'waybill-dedupe-key': dedupeKey }),
    ...(aggregateType !== null && { 'waybill-aggregate-type': aggregateType }),
    ...(aggregateId !== null && { 'waybill-aggregate-id': aggregateId }),
  };
}
