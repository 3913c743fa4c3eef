// Table of the options of endpoints in the reference.

import type { OptionTable } from '../feature.js';
import { resolveEndpointOptions } from './options.js';

export const endpointTables: Record<string, OptionTable> = {
  endpoints: {
    file: 'features/endpoints/options.ts',
    type: 'EndpointOptions',
    // documented with the webhook and with all destinations
    without: [
      'guard',
      'classify',
      'rate',
      'breaker',
      'body',
      'source',
      'method',
      'successCodes',
      'terminalCodes',
      'maxRetryAfterMs',
      'keepResponses',
      'allowedNetworks',
      'dnsServers',
      'proxy',
      'tls',
    ],
    resolve: (options) => resolveEndpointOptions(options).settings,
    words: {
      timeoutMs: { meaning: 'A delivery that takes longer is aborted and counts as failed.' },
      warnAfterMs: { allowed: '1,000 to 31,536,000,000, or null' },
      disableAfterMs: { allowed: '1,000 to 31,536,000,000, or null' },
      retry: {
        meaning: 'When a failed delivery is tried again.',
        fallback: '5 s, 5 min, 30 min, then 2, 5, 10, 14, 20 and 24 h',
        allowed: 'a retry policy',
      },
      whenDead: {
        meaning:
          'What happens to later messages of a key after a dead letter: they are delivered (`continue`), wait for an operator (`block`), or become dead letters too (`park`).',
      },
    },
  },
};
