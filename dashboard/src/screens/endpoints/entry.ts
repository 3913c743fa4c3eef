// The entry of endpoints in the menu.

import type { Entry } from '../../entry.js';
import { EndpointsScreen } from './endpoints.js';

export const entry: Entry = {
  path: 'endpoints',
  name: 'Endpoints',
  icon: 'M8 8a4 4 0 1 1 6 3.5L17 17M12 8l-4 8M8 16a3 3 0 1 1-3-3M8 16h9M17 13a3 3 0 1 1-3 4',
  screen: EndpointsScreen,
  place: 65,
};
