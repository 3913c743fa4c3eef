// waybill/rabbitmq: the destination for RabbitMQ, without the relay. Its client library is loaded when a relay opens it.

import { untilNamed } from '../until-named.js';
import { rabbitmq as makeRabbitmq } from './rabbitmq.js';

export type { RabbitmqOptions } from './rabbitmq.js';

export const rabbitmq: typeof makeRabbitmq = untilNamed(makeRabbitmq);
