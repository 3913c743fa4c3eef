// The entry of the audit in the menu.

import type { Entry } from '../../entry.js';
import { AuditScreen } from './audit.js';

export const entry: Entry = {
  path: 'audit',
  name: 'Audit',
  icon: 'M12 8v4l3 2M12 3a9 9 0 1 0 9 9 9 9 0 0 0-9-9z',
  screen: AuditScreen,
  place: 100,
};
