// What alerts add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const alerts: Feature = {
  checks: async () => (await import('./doctor.js')).alertChecks,
};
