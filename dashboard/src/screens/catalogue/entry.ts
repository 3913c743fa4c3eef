// The entry of the event catalogue in the menu.

import type { Entry } from '../../entry.js';
import { CatalogueScreen } from './catalogue.js';

export const entry: Entry = {
  path: 'events',
  name: 'Events',
  icon: 'M5 4h11l3 3v13H5zM9 9h6M9 13h6M9 17h3',
  screen: CatalogueScreen,
  place: 62,
};
