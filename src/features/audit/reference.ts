// Tables of the options of the audit in the reference.

import type { OptionTable } from '../feature.js';
import { resolveAuditOptions } from './options.js';

export const auditTables: Record<string, OptionTable> = {
  audit: {
    file: 'features/audit/options.ts',
    type: 'AuditOptions',
    base: { seal: true },
    resolve: resolveAuditOptions,
    words: {
      seal: { fallback: '`false`' },
      heads: { fallback: 'into the log', allowed: 'see below' },
    },
  },
  auditHeads: {
    file: 'features/audit/options.ts',
    type: 'HeadOptions',
    resolve: (heads) => resolveAuditOptions({ seal: true, heads }).heads,
    words: {
      file: { fallback: 'none', allowed: 'the path of a file' },
      webhook: { fallback: 'none', allowed: 'an http:// or https:// address' },
      headers: { fallback: 'none', allowed: 'an object of texts, with `webhook`' },
    },
  },
};
