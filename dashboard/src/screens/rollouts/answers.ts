// Answers of the API about rollouts.

import type {
  Comparison as ComparisonRow,
  RolloutReport,
  Verdict as VerdictWord,
} from '../../../../src/features/rollouts/database.js';
import type { Sent } from '../../answers.js';

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
