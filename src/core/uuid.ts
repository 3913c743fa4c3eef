// Checks whether a text is a UUID of any version, in the form that PostgreSQL writes; upper case is accepted too.

const pattern = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function isUuid(text: unknown): boolean {
  return typeof text === 'string' && pattern.test(text);
}
