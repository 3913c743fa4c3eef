// Doctor: runs every check of a database and returns the results. A check that the login may not run, or that the
// schema is too old for, is skipped with the reason, and the others continue. It changes nothing. Only a lost
// connection ends it.

import pg from 'pg';

import { errorText } from '../core/errors.js';
import type { Database } from '../database/connection.js';
import { features } from '../features/all.js';
import { defaultLimits, failure, readRow, skipped } from './check.js';
import type { Check, CheckState, Limits, CheckContext, CheckResult } from './check.js';
import { cursorChecks } from './cursors.js';
import { horizonChecks } from './horizon.js';
import { relayChecks } from './relays.js';
import { retentionChecks } from './retention.js';
import { schemaChecks, schemaExists } from './schema.js';
import { serverChecks } from './server.js';
import { settingChecks } from './settings.js';
import { storageChecks } from './storage.js';
import { workChecks } from './work.js';

export type { CheckState } from './check.js';

const featureChecks = await Promise.all(
  features.flatMap(({ checks: ofFeature }) => (ofFeature ? [ofFeature()] : [])),
);

export const checks: readonly Check[] = [
  ...serverChecks,
  ...settingChecks,
  ...horizonChecks,
  ...schemaChecks,
  ...storageChecks,
  ...relayChecks,
  ...workChecks,
  ...retentionChecks,
  ...cursorChecks,
  ...featureChecks.flat(),
];

export type Examination = Pick<Check, 'code' | 'title'> & {
  state: CheckState;
  found: string;
  remedy: string | null;
  paste: string[];
};

export type DoctorOptions = {
  /** The codes of the checks to run. Default: all. */
  only?: readonly string[];
  limits?: Partial<Limits>;
  nowMs?: () => number;
};

export async function examine(
  database: Database,
  { only, limits, nowMs = Date.now }: DoctorOptions = {},
): Promise<Examination[]> {
  const context: CheckContext = {
    database,
    schema: database.schema,
    limits: { ...defaultLimits, ...limits },
    nowMs,
  };
  const hasSchema = await schemaExists(context);
  const report: Examination[] = [];
  for (const check of checks.filter(({ code }) => only?.includes(code) ?? true)) {
    const result =
      check.needs === 'schema' && !hasSchema
        ? skipped('there is no schema')
        : await check.run(context).catch((error: unknown) => whyNot(error, context));
    report.push({ code: check.code, title: check.title, ...result });
  }
  return report;
}

/** Missing schema, table, column or function: the schema is of an older version, or damaged. */
const missingCodes = new Set(['3F000', '42P01', '42703', '42883']);

async function whyNot(error: unknown, context: CheckContext): Promise<CheckResult> {
  const text = errorText(error);
  // not an answer of the database: the connection is lost
  if (!(error instanceof pg.DatabaseError)) throw error;
  const { code = '' } = error;
  if (missingCodes.has(code))
    return skipped(
      `${text}: the schema does not have it`,
      'Do what schema_version and objects_missing say.',
    );
  if (code === '42501') {
    const { role } = await readRow<{ role: string }>(
      context.database,
      'read role',
      'SELECT quote_ident(current_user) AS role',
    );
    return skipped(`${text} (${role})`, 'Run the doctor as the owner of the schema.');
  }
  if (code === '57014' || code === '55P03') return skipped(`it took too long: ${text}`);
  return failure(
    `the check failed: ${text} (${code})`,
    'The log of PostgreSQL says more; schema_version says whether the schema is of this version.',
  );
}
