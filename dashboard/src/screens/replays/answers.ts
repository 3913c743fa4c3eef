// Answers of the API about replays.

import type {
  ReplayPlan as PlanOfReplay,
  ReplayReport,
} from '../../../../src/features/replays/database.js';
import type { Sent } from '../../answers.js';

export type Replay = Sent<ReplayReport> & { error: string | null };
export type ReplayPlan = Sent<PlanOfReplay> & { until: string };
