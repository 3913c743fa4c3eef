// Answers of the API about dead letters and jobs.

import type {
  DeadLetter,
  DeadLetterGroup,
} from '../../../../src/features/dead-letters/database.js';
import type { Job as JobRow, JobResults } from '../../../../src/features/dead-letters/jobs.js';
import type { Sent } from '../../answers.js';

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
export type Results = JobResults;
