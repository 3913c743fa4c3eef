// Options of the audit: whether attempts and operators' actions are sealed, and where the heads of the chain are kept.
// Heads prove something only in a place that a writer of the database cannot change.

import path from 'node:path';

import { ConfigurationError } from '../../core/errors.js';
import {
  anything,
  checkOptions,
  flag,
  integer,
  optional,
  refuse,
  text,
} from '../../core/options.js';

export type AuditOptions = {
  /** Seals closed ranges of attempts and of operators' actions. Default false. */
  seal?: boolean;
  /** Age at which rows are sealed. Setting the clock back by less than this does no harm. Default 600,000. */
  delayMs?: number;
  /** A range that does not fill up is sealed after this long, and days are searched for late rows this often. Default 3,600,000. */
  everyMs?: number;
  /** Approximate number of rows in one range. Default 10,000. */
  rangeRows?: number;
  /** Where the heads are kept. Default: in the log. */
  heads?: HeadOptions;
};

export type HeadOptions = {
  /** The file that heads are appended to, one line of JSON each. Each relay has its own file. */
  file?: string;
  /** The address that heads are sent to by POST, as `{"heads": [{number, head, sealedAt}]}`. */
  webhook?: string;
  /** Headers of that request, such as an authorization. They are never shown. */
  headers?: Readonly<Record<string, string>>;
  /** Whether heads are logged by the relay, as the event `audit_sealed`. Default true. */
  log?: boolean;
};

export type AuditConfig = {
  /** Seals over attempts and operators' actions, and where their heads are kept. */
  audit?: AuditOptions;
};

declare module '../../telemetry/events.js' {
  interface FeatureEvents {
    audit_sealed: { number: number; head: string; sealedAt: string };
  }
}

export type ResolvedAuditOptions = ReturnType<typeof resolveAuditOptions>;

export function resolveAuditOptions(options: AuditOptions = {}) {
  const checked = checkOptions('audit', options, {
    seal: flag(false),
    delayMs: integer({ min: 0, max: 7 * 86_400_000, default: 600_000 }),
    everyMs: integer({ min: 1000, max: 86_400_000, default: 3_600_000 }),
    rangeRows: integer({ min: 1, max: 1_000_000, default: 10_000 }),
    heads: anything<HeadOptions | undefined>(),
  });
  if (!checked.seal && checked.heads !== undefined) {
    throw new ConfigurationError(
      'audit.heads is given, and audit.seal is not true: nothing would be sealed; set audit.seal, or leave audit.heads out',
    );
  }
  const heads = checkOptions('audit.heads', checked.heads, {
    file: optional(text({ meaning: 'the path of a file' })),
    webhook: optional(webhookAddress),
    headers: optional(headers),
    log: flag(true),
  });
  if (heads.headers && heads.webhook === undefined) {
    throw new ConfigurationError(
      'audit.heads.headers is given without audit.heads.webhook: give the address too, or leave them out',
    );
  }
  return { ...checked, heads: { ...heads, file: heads.file && path.resolve(heads.file) } };
}

function webhookAddress(name: string, value: unknown): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined;
  // the address is not shown: it may contain a secret
  if (!url || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '')
    throw new ConfigurationError(
      `${name} must be an http:// or https:// address without user and password: use audit.heads.headers for those`,
    );
  return url.href;
}

function headers(name: string, value: unknown): Readonly<Record<string, string>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    refuse(name, typeof value, 'give an object such as { authorization: "Bearer …" }');
  for (const [header, content] of Object.entries(value)) {
    if (typeof content !== 'string' || !/^[\w-]+$/.test(header))
      throw new ConfigurationError(`${name}.${header.slice(0, 60)} must be a header with a text`);
  }
  return value as Record<string, string>;
}
