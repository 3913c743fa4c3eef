// Answers of the API: the server's types after their way through JSON, where times are text.

import type { ActionPage } from '../../src/features/audit/actions.js';
import type { DeadLetter, DeadLetterGroup } from '../../src/features/dead-letters/database.js';
import type { Job as JobRow } from '../../src/features/dead-letters/jobs.js';
import type {
  BlockedKey as BlockedKeyRow,
  BlockedKeyPage,
} from '../../src/features/keys/database.js';
import type { MessageDetail, Attempt as AttemptRow } from '../../src/listing/message-detail.js';
import type { ListedMessage as ListedRow } from '../../src/listing/message-list.js';
import type {
  ReplayPlan as PlanOfReplay,
  ReplayReport,
} from '../../src/features/replays/database.js';
import type { DestinationReport, HealthMetric, RelayReport } from '../../src/listing/reports.js';
import type {
  Comparison as ComparisonRow,
  RolloutReport,
  Verdict as VerdictWord,
} from '../../src/features/rollouts/database.js';
import type { Alert } from '../../src/features/alerts/database.js';
import type { Overview as OverviewRows } from '../../src/listing/statistics.js';
import type { StorageReport } from '../../src/listing/storage-report.js';
import type { Access } from '../../src/features/tokens/database.js';
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
export type BlockedKey = Sent<BlockedKeyRow>;
export type BlockedKeys = Sent<BlockedKeyPage>;
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
  /** Null: all comparisons were used. */
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
