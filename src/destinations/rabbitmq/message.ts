// Renders a message for RabbitMQ: properties and headers. Messages that the protocol cannot carry are rejected here,
// because a protocol error would close the channel for all messages in flight on it.

import type { Envelope } from 'rabbitmq-client';

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { cloudEventAttributes } from '../../core/cloud-event.js';
import { reject } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';

/** The smallest frame size that brokers are configured with; headers must fit into one frame. */
export const frameBytes = 8192;
const shortBytes = 255;

/** Returns the envelope, or the reason why the message cannot be sent. */
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

/** Without the content type, which AMQP has as a property. */
export function cloudEventHeaders(
  message: ClaimedMessage,
  source: string | undefined,
): Record<string, string> {
  const { datacontenttype: _, ...attributes } = cloudEventAttributes(message, source);
  const prefixed = Object.entries(attributes).map(([name, value]) => [
    `cloudEvents:${name}`,
    value,
  ]);
  // an application's header must not look like an attribute
  const own = Object.entries(message.headers).filter(([name]) => !/^cloudevents[:_]/i.test(name));
  return Object.fromEntries([...own, ...prefixed]) as Record<string, string>;
}

/** RabbitMQ takes these headers as further routing keys, and closes the channel if one of them is a text. */
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
