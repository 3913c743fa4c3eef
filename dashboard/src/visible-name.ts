// Visible names: a name on one line, that can be seen even if it is white space.

import { visibleLine } from '../../src/core/visible-text.js';

/** `␠` marks the white space of a name that has nothing else. */
export function visibleName(name: string): string {
  const line = visibleLine(name);
  return line.trim() === '' ? line.replaceAll(/\s/gu, '␠') : line;
}
