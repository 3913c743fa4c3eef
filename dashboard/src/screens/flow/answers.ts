// Answer of the API about the flow.

import type { Flow as FlowOf } from '../../../../src/features/catalogue/flow.js';
import type { Sent } from '../../answers.js';

export type Flow = Sent<FlowOf>;
