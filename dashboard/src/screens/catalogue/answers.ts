// Answers of the API about the event catalogue.

import type {
  Catalogue as CatalogueOf,
  CatalogueEvent as EventOf,
} from '../../../../src/features/catalogue/catalogue.js';
import type { Sent } from '../../answers.js';

export type Catalogue = Sent<CatalogueOf>;
export type CatalogueEvent = Sent<EventOf>;
