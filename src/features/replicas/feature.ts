// What replicas add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const replicas: Feature = {
  checks: async () => (await import('./doctor.js')).replicaChecks,
};
