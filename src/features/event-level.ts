// The level at which an event is logged: features say it in their descriptors, the core in src/telemetry/events.ts.

import { coreLevel } from '../telemetry/events.js';
import type { CoreEvent, RelayEvent } from '../telemetry/events.js';
import { features } from './all.js';
import type { EventDescription } from './feature.js';

const descriptions = new Map(features.flatMap(({ events = {} }) => Object.entries(events)));

export function eventLevel({ name }: RelayEvent): EventDescription['level'] {
  return descriptions.get(name)?.level ?? coreLevel(name as CoreEvent['name']);
}
