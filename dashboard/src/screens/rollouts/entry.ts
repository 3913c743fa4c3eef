// The entry of rollouts in the menu.

import type { Entry } from '../../entry.js';
import { RolloutsScreen } from './rollouts.js';

export const entry: Entry = {
  path: 'rollouts',
  name: 'Rollouts',
  icon: 'M4 20V10M10 20V4M16 20v-8M22 20H2',
  screen: RolloutsScreen,
  place: 70,
};
