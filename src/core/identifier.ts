// Quotes a name as a SQL identifier, so that any name of a schema, table or role is safe in the text of a statement.

export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
