// Suggestions for a search box: topics, destinations and tenants that begin with a text. The database visits a bounded
// number of each.

import type { Database } from '../database/connection.js';

export type Suggestions = { topics: string[]; destinations: string[]; tenants: string[] };

const mostOfEach = 8;

export async function readSuggestions(database: Database, text: string): Promise<Suggestions> {
  const rows = await database.query<{ kind: 'topic' | 'destination' | 'tenant'; value: string }>(
    'read suggestions',
    `SELECT s.kind, s.value FROM ${database.schema}.search_suggestions($1, $2) s`,
    [text, mostOfEach],
  );
  const of = (wanted: string) =>
    rows.filter(({ kind }) => kind === wanted).map(({ value }) => value);
  return { topics: of('topic'), destinations: of('destination'), tenants: of('tenant') };
}
