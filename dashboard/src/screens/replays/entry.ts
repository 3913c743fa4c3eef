// The entry of replays in the menu.

import { iconPaths } from '../../parts/icon.js';
import type { Entry } from '../../entry.js';
import { ReplaysScreen } from './replays.js';

export const entry: Entry = {
  path: 'replays',
  name: 'Replays',
  icon: iconPaths.replay,
  screen: ReplaysScreen,
  place: 50,
};
