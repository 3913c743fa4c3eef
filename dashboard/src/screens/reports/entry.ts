// The entry of reports in the menu.

import type { Entry } from '../../entry.js';
import { ReportsScreen } from './reports.js';

export const entry: Entry = {
  path: 'reports',
  name: 'Reports',
  icon: 'M4 4v16h16M8 16v-5M12 16V7M16 16v-3',
  screen: ReportsScreen,
  place: 64,
};
