// waybill/kafka: the destination for Kafka, without the relay. Its client library is loaded when a relay opens it.

import { untilNamed } from '../until-named.js';
import { kafka as makeKafka } from './kafka.js';

export type { KafkaOptions, KafkaSasl, KafkaTls } from './kafka.js';

export const kafka: typeof makeKafka = untilNamed(makeKafka);
