// All features that add commands, routes or checks, in the order in which help, API and doctor list them.

import { alerts } from './alerts/feature.js';
import { applications } from './applications/feature.js';
import { audit } from './audit/feature.js';
import { catalogue } from './catalogue/feature.js';
import { deadLetters } from './dead-letters/feature.js';
import { endpoints } from './endpoints/feature.js';
import { idempotency } from './idempotency/feature.js';
import { keys } from './keys/feature.js';
import { replays } from './replays/feature.js';
import { replicas } from './replicas/feature.js';
import { reports } from './reports/feature.js';
import { rollouts } from './rollouts/feature.js';
import { tokens } from './tokens/feature.js';
import { unrouted } from './unrouted/feature.js';
import { watches } from './watches/feature.js';
import type { Feature } from './feature.js';

export const features: readonly Feature[] = [
  applications,
  deadLetters,
  keys,
  replays,
  endpoints,
  unrouted,
  rollouts,
  audit,
  tokens,
  idempotency,
  watches,
  alerts,
  reports,
  catalogue,
  replicas,
];
