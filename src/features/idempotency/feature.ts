// What idempotency keys add to the surfaces for operators and to the references: nothing, because only the server uses
// them. See ../feature.ts.

import type { Feature } from '../feature.js';

export const idempotency: Feature = {};
