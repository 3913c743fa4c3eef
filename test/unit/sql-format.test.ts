// The layout of the SQL files: lines of at most 120 columns, keywords in upper case, and one clause a line unless the
// whole statement is short.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

const widest = 120;
/** A statement or subquery up to this column may stand on one line. */
const short = 100;

const files = readdirSync('sql', { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.sql'))
  .map((file) => path.join('sql', file))
  .toSorted();

const keywords =
  /\b(select|insert into|update|delete from|from|where|group by|order by|having|limit|returning|values|union all|left join|cross join|inner join|begin|declare|perform|raise exception|return query|create or replace|language|volatile|stable|immutable)\b/;
const clauses =
  /\b(?:FROM|WHERE|GROUP BY|HAVING|ORDER BY|LIMIT|RETURNING|VALUES|UNION ALL|LEFT JOIN|CROSS JOIN|ON CONFLICT)\b/g;

type Line = { text: string; number: number };

/** Lines of code, without comments and without what string literals contain. */
function codeOf(file: string): Line[] {
  let isInLiteral = false;
  return readFileSync(file, 'utf8')
    .split('\n')
    .map((line, index) => {
      let text = '';
      for (let at = 0; at < line.length; at += 1) {
        if (!isInLiteral && line.startsWith('--', at)) break;
        if (line[at] === "'") isInLiteral = !isInLiteral;
        else if (!isInLiteral) text += line[at];
      }
      return { text, number: index + 1 };
    });
}

/** Clauses of one statement on this line, the most at any depth of parentheses. */
function clausesTogether(text: string): number {
  const atDepth = new Map<number, number>();
  let depth = 0;
  let most = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === '(') depth += 1;
    else if (text[at] === ')') {
      atDepth.delete(depth);
      depth -= 1;
    } else {
      clauses.lastIndex = at;
      const found = clauses.exec(text);
      if (found?.index !== at) continue;
      atDepth.set(depth, (atDepth.get(depth) ?? 0) + 1);
      most = Math.max(most, atDepth.get(depth) ?? 0);
      at += found[0].length - 1;
    }
  }
  return most;
}

describe.each(files)('%s', (file) => {
  it(`has lines of at most ${widest} columns`, () => {
    const lines = readFileSync(file, 'utf8').split('\n');
    expect(lines.flatMap((line, n) => (line.length > widest ? [n + 1] : []))).toEqual([]);
  });

  it('has keywords in upper case', () => {
    const wrong = codeOf(file).filter(({ text }) => keywords.test(text));
    expect(wrong.map(({ number, text }) => `${number}: ${text.trim()}`)).toEqual([]);
  });

  it('has one clause a line, except in short statements', () => {
    const wrong = codeOf(file).filter(
      ({ text }) => text.length > short && clausesTogether(text) > 1,
    );
    expect(wrong.map(({ number }) => number)).toEqual([]);
  });
});
