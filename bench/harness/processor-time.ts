// Processor time of processes, all threads together, as the kernel counts it in hundredths of a second. Only Linux
// reports it for other processes; elsewhere it is null.

import { existsSync, readFileSync } from 'node:fs';

/** The kernel's unit of processor time. */
const tickMs = 10;

/** The processor time of the process so far. */
export function processorMs(pid: number): number | null {
  const file = `/proc/${pid}/stat`;
  if (!existsSync(file)) return null;
  const fields = readFileSync(file, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * tickMs;
}

/** Process ids by role. */
type Groups<Name extends string> = Record<Name, readonly number[]>;

/**
 * Starts counting. The returned function ends it and returns the time of each group, including processes that joined
 * later.
 */
export async function countProcessorTime<Name extends string>(
  groups: () => Promise<Groups<Name>>,
): Promise<() => Promise<Record<Name, number | null>>> {
  const before = new Map(
    Object.values<readonly number[]>(await groups())
      .flat()
      .map((pid) => [pid, processorMs(pid) ?? 0]),
  );
  return async () => {
    const used = Object.entries<readonly number[]>(await groups()).map(([name, pids]) => {
      const each = pids.map((pid) => {
        const nowMs = processorMs(pid);
        return nowMs === null ? null : nowMs - (before.get(pid) ?? 0);
      });
      const sumMs = each.reduce<number>((sum, ms) => sum + (ms ?? 0), 0);
      return [name, each.every((ms) => ms === null) ? null : sumMs];
    });
    return Object.fromEntries(used) as Record<Name, number | null>;
  };
}
