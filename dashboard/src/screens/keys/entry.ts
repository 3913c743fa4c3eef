// The entry of keys in the menu.

import type { Entry } from '../../entry.js';
import { KeysScreen } from './keys.js';

export const entry: Entry = {
  path: 'keys',
  name: 'Keys',
  icon: 'M15 7a4 4 0 1 1-3.5 6L4 20.5M7 17l2.5 2.5',
  screen: KeysScreen,
  place: 40,
  counted: 'blocked',
};
