// waybill/nats: the destination for NATS JetStream, without the relay. Its client library is loaded when a relay opens it.

import { untilNamed } from '../until-named.js';
import { nats as makeNats } from './nats.js';

export type { NatsOptions } from './nats.js';

export const nats: typeof makeNats = untilNamed(makeNats);
