// Keeps the error tables in the pages of brokers correct: each code that a destination knows has a row with its outcome
// and Waybill's code.

import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import type { Rules } from '../../src/destinations/failures.js';
import { natsFailures } from '../../src/destinations/nats/nats.js';
import { rabbitmqFailures } from '../../src/destinations/rabbitmq/rabbitmq.js';

describe.each<[string, Rules]>([
  ['nats', natsFailures],
  ['rabbitmq', rabbitmqFailures],
])('docs/guides/destinations/%s.md', (kind, rules) => {
  const text = readFileSync(`docs/guides/destinations/${kind}.md`, 'utf8');
  const rows = text.split('\n').filter((line) => line.startsWith('|'));

  const listed = Object.entries(rules).filter(([remote]) => remote !== 'unknown');
  test.each(listed.map(([remote, rule]) => [remote, rule.kind, rule.code]))(
    'P10 says that %s means %s, as %s',
    (remote, outcome, code) => {
      const row = rows.find((line) => new RegExp(`\\b${remote}\\b`).test(line));
      expect(row).toMatch(new RegExp(`\\| ${outcome} \\| \`${code}\` \\|$`));
    },
  );

  test('names no outcome that the code does not have', () => {
    const named = rows.flatMap(
      (line) => /\| (?:retry|reject|pause) \| `(\w+)` \|$/.exec(line)?.[1] ?? [],
    );
    const known = Object.values(rules).map(({ code }) => code);
    expect([...new Set(named)].toSorted()).toEqual(
      [...new Set([...known, 'connection_failed'])].toSorted(),
    );
  });
});
