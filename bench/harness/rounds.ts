// Rounds and medians: every round runs every contender, in a rotating order, so a noisy minute affects all of them.
// Medians over the rounds ignore outliers.

export async function interleave<Name extends string, Figure>(
  rounds: number,
  names: readonly Name[],
  run: (name: Name, round: number) => Promise<Figure>,
): Promise<Record<Name, Figure[]>> {
  const figures = Object.fromEntries(names.map((name) => [name, [] as Figure[]])) as Record<
    Name,
    Figure[]
  >;
  for (let round = 0; round < rounds; round += 1) {
    const first = round % names.length;
    for (const name of [...names.slice(first), ...names.slice(0, first)]) {
      figures[name].push(await run(name, round));
    }
  }
  return figures;
}

export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** The nearest-rank percentile; NaN for no values. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const rank = Math.max(Math.ceil((percent / 100) * sorted.length), 1);
  if (percent !== 50 || sorted.length % 2 === 1) return sorted[rank - 1] ?? Number.NaN;
  return ((sorted[rank - 1] ?? Number.NaN) + (sorted[rank] ?? Number.NaN)) / 2;
}

export type Spread = { p50: number; p95: number; p99: number; max: number };

export function spread(values: readonly number[]): Spread {
  return {
    p50: percentile(values, 50),
    p95: percentile(values, 95),
    p99: percentile(values, 99),
    max: percentile(values, 100),
  };
}

/** The clock that all processes of a machine share; see processes/clock.mjs. */
export function clockMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

const pollMs = 5;

export async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await pause(pollMs);
}

export async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
}
