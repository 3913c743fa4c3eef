// HTTP routes of reports, as JSON or CSV.

import type { Access } from '../../server/access.js';
import { HttpProblem, text, time, wholeNumber, word } from '../../server/route.js';
import type { Route } from '../../server/route.js';
import { csvOf } from './csv.js';
import type { ReportBy } from './database.js';
import { fileNameOf } from './file-name.js';
import {
  columnsOf,
  countOf,
  defaultRows,
  mostRows,
  periodNames,
  periodOf,
  readReport,
  reportedBy,
} from './report.js';
import type { PeriodName } from './report.js';

type Values = {
  period?: PeriodName;
  from?: Date;
  to?: Date;
  name?: string;
  sort?: string;
  order?: 'asc' | 'desc';
  limit?: number;
  format?: 'json' | 'csv';
};

const summaries: Record<ReportBy, string> = {
  topics: 'Messages of a period by topic.',
  tenants:
    'Messages of a period by tenant; the name of messages without a tenant is empty. A token of one tenant gets the row of its tenant only.',
  destinations:
    'Deliveries of a period by destination: tries, failed tries, dead letters, rates, and percentiles of the time to delivery.',
};

export const reportRoutes: readonly Route[] = reportedBy.map(reportRoute);

function reportRoute(by: ReportBy): Route {
  return {
    method: 'GET',
    path: `/api/reports/${by}`,
    scope: 'read',
    ...(by === 'tenants' && { forTenants: true as const }),
    summary: `${summaries[by]} It has the 1,000 largest names, and all others together (\`name\` null).`,
    returns:
      '`rows`, the `total`, and how many rows are `hidden` by the limit; the period `from` and `to` in whole slices, and `completeTo`: everything before it is counted',
    ...(by === 'destinations' && { errors: { 404: 'no such destination' } }),
    parameters: {
      period: word(
        { description: 'the period up to now; 24h if neither it nor `from` is given' },
        periodNames,
      ),
      from: time({
        description: 'instead of `period`: the beginning; at most 31 days before `to`',
      }),
      to: time({ description: 'the end, with `from`; now if not given' }),
      name: text({ description: `only this one of the ${by}` }, 255),
      sort: word(
        { description: `the column to sort by; \`${countOf(by)}\` if not given` },
        columnsOf[by],
      ),
      order: word({ description: '`desc` if not given; `asc` if sorted by `name`' }, [
        'asc',
        'desc',
      ]),
      limit: wholeNumber(
        { description: 'at most so many rows; if not given, 100 in JSON and all in CSV' },
        { min: 1, max: mostRows },
      ),
      format: word({ description: 'json if not given' }, ['json', 'csv']),
    },
    async answer({ database, access, values, shared }) {
      const { period, from, to, name, sort, order, format } = values as Values;
      const { limit = defaultRows(format === 'csv') } = values as Values;
      const chosen = periodOf({ period, from, to }, new Date());
      const only = nameFor(access, name);
      const read = () => readReport(database, by, { ...chosen, sort, order, limit, name: only });
      // the period moves with the clock, so only its name can be shared
      const report =
        from === undefined && only === null
          ? await shared.get(`report ${[by, period, sort, order, limit].join(' ')}`, read)
          : await read();
      if (format !== 'csv') return report;
      return new Response(csvOf(report), {
        headers: {
          'content-type': 'text/csv; charset=utf-8',
          'content-disposition': `attachment; filename="${fileNameOf(report, 'csv')}"`,
        },
      });
    },
  };
}

/** The only name of the report, if it has one: a token that is limited to a tenant gets the row of that tenant. */
function nameFor({ name: token, tenantId }: Access, name: string | undefined): string | null {
  if (tenantId !== null && name !== undefined && name !== tenantId)
    throw new HttpProblem(403, `${token} may see the tenant ${tenantId} only: leave name out`);
  return tenantId ?? name ?? null;
}
