// Answers of the API about reports.

import type { Report as ReportOf } from '../../../../src/features/reports/report.js';
import type { Sent } from '../../answers.js';

export type Report = Sent<ReportOf>;
