// The entry of dead letters in the menu.

import type { Entry } from '../../entry.js';
import { DeadLettersScreen } from './dead-letters.js';

export const entry: Entry = {
  path: 'dead-letters',
  name: 'Dead letters',
  icon: 'M12 8v5M12 16.5v.5M10.3 4 2.5 18a2 2 0 0 0 1.7 3h15.6a2 2 0 0 0 1.7-3L13.7 4a2 2 0 0 0-3.4 0z',
  screen: DeadLettersScreen,
  place: 30,
  counted: 'dead',
};
