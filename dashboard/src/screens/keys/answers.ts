// Answers of the API about blocked keys.

import type {
  BlockedKey as BlockedKeyRow,
  BlockedKeyPage,
} from '../../../../src/features/keys/database.js';
import type { Sent } from '../../answers.js';

export type BlockedKey = Sent<BlockedKeyRow>;
export type BlockedKeys = Sent<BlockedKeyPage>;
