// A message as RabbitMQ gets it: properties and headers. What the protocol cannot carry is rejected here, because an
// error in it would close the channel for all messages that are under way on it.

import type { Envelope } from 'rabbitmq-client';

import type { ClaimedMessage } from '../../model/claimed-message.js';
import { cloudEventAttributes } from '../../model/cloud-event.js';
import { reject } from '../../model/outcome.js';
import type { Outcome } from '../../model/outcome.js';

/** The smallest that any broker is set up with; headers must fit into one frame. */
export const frameBytes = 8192;
const shortBytes = 255;

/** Or the reason why it cannot be sent. */
export function envelopeOf(
  message: ClaimedMessage,
  exchange: string,
  routingKey: string,
  headers: Record<string, string>,
): (Envelope & { messageId: string }) | Outcome {
  return (
    problemWith(exchange, routingKey, headers) ?? {
      exchange,
      routingKey,
      mandatory: true,
      durable: true,
      messageId: message.id,
      type: message.topic,
      timestamp: Math.floor(message.createdAt.getTime() / 1000),
      contentType: 'application/json',
      headers: withoutCopies(headers),
    }
  );
}

/** The content type is a property of its own. */
export function cloudEventHeaders(
  message: ClaimedMessage,
  source: string | undefined,
): Record<string, string> {
  const { datacontenttype: _, ...attributes } = cloudEventAttributes(message, source);
  const prefixed = Object.entries(attributes).map(([name, value]) => [
    `cloudEvents:${name}`,
    value,
  ]);
  // an application's header must not pass for an attribute
  const own = Object.entries(message.headers).filter(([name]) => !/^cloudevents[:_]/i.test(name));
  return Object.fromEntries([...own, ...prefixed]) as Record<string, string>;
}

/** To RabbitMQ these are further routing keys, and a text there is an error that closes the channel. */
function withoutCopies(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => name !== 'CC' && name !== 'BCC'),
  );
}

function problemWith(
  exchange: string,
  routingKey: string,
  headers: Record<string, string>,
): Outcome | null {
  if (isLong(exchange) || isLong(routingKey)) {
    const message = `exchange and routing key have ${shortBytes} bytes at most`;
    return reject({ code: 'routing_key_invalid', message });
  }
  let bytes = 512 + Buffer.byteLength(exchange);
  for (const [name, value] of Object.entries(headers)) {
    if (isLong(name) || name === '')
      return reject({ code: 'header_invalid', message: 'a header has a name of 1 to 255 bytes' });
    bytes += Buffer.byteLength(name) + Buffer.byteLength(value) + 6;
  }
  if (bytes <= frameBytes) return null;
  return reject({ code: 'header_invalid', message: `headers have ${frameBytes} bytes at most` });
}

function isLong(name: string): boolean {
  return Buffer.byteLength(name) > shortBytes;
}
