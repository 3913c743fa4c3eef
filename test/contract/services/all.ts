// Every service that the contract is tested on.

import { kafkaService } from './kafka.js';
import { natsService } from './nats.js';
import { rabbitmqService } from './rabbitmq.js';
import { redisService } from './redis.js';
import type { ServiceKind } from './service.js';
import { sqsService } from './sqs.js';
import { webhookService } from './webhook.js';

export const services: readonly ServiceKind[] = [
  webhookService,
  kafkaService,
  natsService,
  rabbitmqService,
  redisService,
  sqsService,
];
