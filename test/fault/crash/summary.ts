// Formats a crash run as a table.

import type { CrashReport } from './crash-run.js';
import { phases } from './faults.js';

const examples = 5;

export function summarise({ seed, durationMs, evidence, findings, counts }: CrashReport): string {
  const { faults, quietMs, mostOverdueMs } = evidence;
  const kills = (phase: string) => faults.kills.filter((kill) => kill.phase === phase).length;
  const leasesAtCrash = faults.databaseCrashes.map(({ moment, leases }) => `${moment}: ${leases}`);
  const rows: [string, string | number][] = [
    ['seed', seed],
    ['messages committed', counts.committed],
    ['  rolled back', counts.aborted],
    ['  commit unknown', counts.unknown],
    ['received by the sink', counts.received],
    ['  duplicates', counts.duplicates],
    ['dead letters', counts.dead],
    ['zombie requeues', counts.zombies],
    ['released', counts.released],
    ['kills that count', faults.kills.length],
    ...[...phases, 'any moment'].map((phase): [string, number] => [`  in ${phase}`, kills(phase)]),
    ['kills that do not count', faults.uncountedKills],
    ['late settles (SIGSTOP)', faults.lateSettles.length],
    [
      'database crashes',
      `${faults.databaseCrashes.length} (leases held: ${leasesAtCrash.join(', ')})`,
    ],
    [
      'relays half-open',
      `${faults.silences.length} (until settled again: ${faults.silences.map(({ resumedMs }) => `${Math.round(resumedMs)} ms`).join(', ')})`,
    ],
    ['connections cut', faults.connectionsCut],
    ['commits cut', faults.commitsCut],
    ['longest overdue lease', `${mostOverdueMs} ms`],
    ['quiet after', quietMs === null ? 'never' : `${Math.round(quietMs)} ms`],
    ['time', `${(durationMs / 1000).toFixed(1)} s`],
  ];
  return [
    ...rows.map(([name, value]) => `${name.padEnd(26)}${value}`),
    '',
    ...findings.flatMap(({ invariant, wrong, notApplicable }) => [
      `${notApplicable ? 'n/a ' : wrong.length === 0 ? 'ok  ' : 'FAIL'} ${invariant}${notApplicable ? ` (${notApplicable})` : ''}`,
      ...wrong.slice(0, examples).map((line) => `       ${line}`),
      ...(wrong.length > examples ? [`       and ${wrong.length - examples} more`] : []),
    ]),
  ].join('\n');
}

export function violated({ findings }: Pick<CrashReport, 'findings'>): string[] {
  return findings.filter(({ wrong }) => wrong.length > 0).map(({ invariant }) => invariant);
}
