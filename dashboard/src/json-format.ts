// Formats JSON text with line breaks and indentation. The text is never parsed: numbers keep every digit, and text that
// was cut off can be formatted too.

export function formatJson(text: string): string {
  let formatted = '';
  let depth = 0;
  let before = '';
  const newLine = (): string => `\n${'  '.repeat(depth)}`;
  // a string, a structural character, or anything between them
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^"{}[\],:\s]+/gs)) {
    const opened = before === '{' || before === '[';
    const closes = token === '}' || token === ']';
    if (closes) depth = Math.max(0, depth - 1);
    // {} and [] stay together
    if (before === ',' || opened !== closes) formatted += newLine();
    formatted += token === ':' ? ': ' : token;
    if (token === '{' || token === '[') depth += 1;
    before = token;
  }
  return formatted;
}
