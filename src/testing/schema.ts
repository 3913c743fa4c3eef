// The whole schema as SQL, for databases that the command line cannot reach, such as PGlite.

import { migrationSteps } from '../database/migration-steps.js';

export function migrationSql(schema: string): string {
  return migrationSteps(schema)
    .map(({ up }) => up)
    .join('\n');
}
