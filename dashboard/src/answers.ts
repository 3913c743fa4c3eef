// What the API answers: the server's own types as they are after their way through JSON, where a time is text.

import type { ActionPage } from '../../src/database/audit.js';
import type { DeadLetter, DeadLetterGroup } from '../../src/database/dead-letters.js';
import type { Job as JobRow } from '../../src/database/jobs.js';
import type { BlockedLane } from '../../src/database/lanes.js';
import type { MessageDetail, Attempt as AttemptRow } from '../../src/database/message-detail.js';
import type { ListedMessage as ListedRow } from '../../src/database/message-list.js';
import type { ReplayPlan as PlanOfReplay, ReplayReport } from '../../src/database/replays.js';
import type { DestinationReport, HealthMetric, RelayReport } from '../../src/database/reports.js';
import type {
  Comparison as ComparisonRow,
  RolloutReport,
  Verdict as VerdictWord,
} from '../../src/database/rollouts.js';
import type { Alert, Overview as OverviewRows } from '../../src/database/statistics.js';
import type { StorageReport } from '../../src/database/storage-report.js';
import type { Access } from '../../src/database/tokens.js';
import type { Source } from '../../src/server/route.js';

type Sent<T> = T extends Date
  ? string
  : T extends (infer Item)[]
    ? Sent<Item>[]
    : T extends object
      ? { [Name in keyof T]: Sent<T[Name]> }
      : T;

export type Session = Access & { authentication: 'tokens' | 'none' };
export type ListedMessage = Sent<ListedRow>;
export type MessagePage = { messages: ListedMessage[]; next: string | null; searched: number };
export type Message = Sent<MessageDetail>;
export type Attempt = Sent<AttemptRow>;
export type Letter = Sent<DeadLetter>;
export type Groups = { groups: Sent<DeadLetterGroup>[] };
export type Plan = {
  action: string;
  count: number;
  atLeast: boolean;
  deadBefore: string;
  sample: Letter[];
};
export type Job = Sent<JobRow>;
export type Replay = Sent<ReplayReport> & { error: string | null };
export type ReplayPlan = Sent<PlanOfReplay> & { until: string };
export type Lane = Sent<BlockedLane>;
export type Lanes = { lanes: Lane[]; next: string | null };
export type Destination = Sent<DestinationReport>;
export type Relay = Sent<RelayReport>;
export type Rollout = Sent<RolloutReport>;
export type Verdict = VerdictWord;
export type Comparison = Omit<ComparisonRow, 'rendered' | 'sent'> & {
  rendered: object | string | null;
  sent: object | string | null;
};
export type RolloutComparison = {
  rollout: Rollout;
  /** Null: all of them are looked at. */
  comparedSince: string | null;
  verdicts: Record<Verdict, number>;
  examples: Comparison[];
};
export type Health = { health: HealthMetric[]; source: Source | null };
export type Overview = Sent<OverviewRows> & {
  health: Record<string, number | null>;
  alarms: string[];
  alerts: Alert[];
  source: Source | null;
};
export type Storage = Sent<StorageReport>;
export type Actions = Sent<ActionPage>;
