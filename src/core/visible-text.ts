// Visible text: writes invisible characters as escapes, for logs, terminals and the page. A name or error text of
// another system must not control a terminal, or reverse a line so that it reads differently. Only displayed text is
// escaped, never stored text.

/**
 * Control characters except tab and line feed; format characters, including those of bidirectional text (U+202E …),
 * except the joiners that scripts and emoji need; and separators that some programs treat as the end of a line.
 */
const unseen = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;
const kept = new Set(['\t', '\n', '\u200c', '\u200d']);

/**
 * Writes each character as an escape such as `\u202e`. In JSON that is the same character, so valid JSON stays
 * valid.
 */
export function visible(text: string): string {
  return text.replace(unseen, (character) =>
    kept.has(character) ? character : escaped(character),
  );
}

/** For a single line: escapes tabs and line breaks too. */
export function visibleLine(text: string): string {
  return visible(text).replace(/[\t\n]/g, escaped);
}

/** As in JSON: two escapes for a character that UTF-16 encodes in two units. */
function escaped(character: string): string {
  let result = '';
  for (let at = 0; at < character.length; at += 1)
    result += `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`;
  return result;
}
