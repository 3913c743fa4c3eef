// All features that add a part to a run of a relay.

import type { PartContext, RelayPart } from '../relay/part.js';
import { alertsPart } from './alerts/relay-part.js';
import { auditPart } from './audit/relay-part.js';
import { watchesPart } from './watches/relay-part.js';

/** The parts that this configuration asks for. Can be repeated: nothing is open yet. */
export async function relayParts(context: PartContext): Promise<RelayPart[]> {
  const parts = [watchesPart(context), auditPart(context), await alertsPart(context)];
  return parts.filter((part) => part !== undefined);
}
