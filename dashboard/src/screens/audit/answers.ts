// Answers of the API about operators' actions.

import type { ActionPage } from '../../../../src/features/audit/actions.js';
import type { Sent } from '../../answers.js';

export type Actions = Sent<ActionPage>;
