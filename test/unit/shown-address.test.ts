// The address of a destination for display: complete enough to recognise it, and without secrets.

import { describe, expect, it } from 'vitest';

import { shownUrl } from '../../src/destinations/shown-address.js';
import { kafka } from '../../src/destinations/kafka/kafka.js';
import { nats } from '../../src/destinations/nats/nats.js';
import { rabbitmq } from '../../src/destinations/rabbitmq/rabbitmq.js';
import { redis } from '../../src/destinations/redis/redis.js';
import { sqs } from '../../src/destinations/sqs/sqs.js';
import { handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import type { Destination } from '../../src/destinations/destination.js';
import { definitionsOf } from '../../src/relay/setup.js';

const addressOf = (destination: Destination) =>
  definitionsOf({ destinations: { one: destination }, routes: [] }).destinations[0]?.shown.address;

describe('W5 the path of a webhook keeps words and hides what may be a token', () => {
  it.each([
    ['https://crm.example.com/hooks/waybill', 'https://crm.example.com/hooks/waybill'],
    ['https://crm.example.com/api/v2/orderEvents/', 'https://crm.example.com/api/v2/orderEvents/'],
    ['https://crm.example.com:8443/', 'https://crm.example.com:8443/'],
    [
      'https://hooks.slack.com/services/T024BE7LD/B019/XkQp2mZ7vB1nR4tY8wLs',
      'https://hooks.slack.com/services/[hidden]/[hidden]/[hidden]',
    ],
    [
      'https://discord.com/api/webhooks/1199887766554433221/aBcDeFgHiJkLmNoPqRsT',
      'https://discord.com/api/webhooks/[hidden]/[hidden]',
    ],
    [
      'https://api.telegram.org/bot123456:AAF-x9/sendMessage',
      'https://api.telegram.org/[hidden]/sendMessage',
    ],
    [`https://crm.example.com/${'abcdefgh'.repeat(8)}`, 'https://crm.example.com/[hidden]'],
    ['https://crm.example.com/%61bc', 'https://crm.example.com/[hidden]'],
    [
      'https://crm.example.com/in?token=s3cret&tenant=acme&token=other',
      'https://crm.example.com/in?token=[hidden]&tenant=[hidden]',
    ],
  ])('%s', (url, shown) => {
    expect(shownUrl(new URL(url), true)).toBe(shown);
  });
});

it('W5 the address of each kind of destination says where it sends, without its login', () => {
  const brokers = ['kafka-1:9092', 'kafka-2:9092'];
  expect(addressOf(webhook({ url: 'https://crm.example.com/hooks' }))).toEqual([
    { name: 'url', value: 'https://crm.example.com/hooks' },
  ]);
  expect(
    addressOf(
      kafka({
        brokers,
        topic: 'orders-{tenantId}',
        sasl: { mechanism: 'plain', username: 'anna', password: 'geheim' },
      }),
    ),
  ).toEqual([
    { name: 'brokers', value: 'kafka-1:9092, kafka-2:9092' },
    { name: 'topic', value: 'orders-{tenantId}' },
  ]);
  expect(addressOf(nats({ servers: 'nats://nats:4222', token: 'geheim' }))).toEqual([
    { name: 'servers', value: 'nats://nats:4222' },
    { name: 'subject', value: '{topic}' },
  ]);
  expect(addressOf(rabbitmq({ url: 'amqps://anna:geheim@rabbit:5671/shop' }))).toEqual([
    { name: 'url', value: 'amqps://rabbit:5671/shop' },
    { name: 'routingKey', value: '{topic}' },
  ]);
  expect(addressOf(redis({ url: 'redis://anna:geheim@redis:6379/2' }))).toEqual([
    { name: 'url', value: 'redis://redis:6379/2' },
    { name: 'stream', value: '{topic}' },
  ]);
  const queueUrl = 'https://sqs.eu-west-1.amazonaws.com/123456789012/orders';
  expect(
    addressOf(sqs({ queueUrl, credentials: { accessKeyId: 'a', secretAccessKey: 'geheim' } })),
  ).toEqual([{ name: 'queueUrl', value: queueUrl }]);
  expect(addressOf(handler(() => undefined))).toBeNull();
});
