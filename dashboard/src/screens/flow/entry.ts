// The entry of the flow diagram in the menu.

import type { Entry } from '../../entry.js';
import { FlowScreen } from './flow.js';

export const entry: Entry = {
  path: 'flow',
  name: 'Flow',
  icon: 'M4 6h4c6 0 2 12 8 12h4M4 18h4M16 6h4',
  screen: FlowScreen,
  place: 63,
};
