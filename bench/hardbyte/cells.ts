// The cells of the harness: five of chaos and four of pressure, with its phases, lengths, rates and replicas.

export type PhaseKind =
  | 'warmup'
  | 'clean'
  | 'high-load'
  | 'idle-in-tx'
  | 'active-readers'
  | 'kill-worker'
  | 'start-worker'
  | 'repeated-kill'
  | 'postgres-restart'
  | 'pg-backend-kill'
  | 'pool-exhaustion';

export type Phase = { label: string; kind: PhaseKind; seconds: number };

export type Cell = {
  name: string;
  suite: 'chaos' | 'pressure';
  /** Messages a second that each replica enqueues. */
  rate: number;
  replicas: number;
  concurrency: number;
  /** The phase to compare with, and the one that is judged. */
  baseline: string;
  judged: string;
  phases: Phase[];
};

function chaos(name: string, replicas: number, faults: Phase[]): Cell {
  const phases = [
    phase('warmup', 'warmup', 30),
    phase('baseline', 'clean', 60),
    ...faults,
    phase('recovery', 'clean', 60),
  ];
  const judging = { baseline: 'baseline', judged: 'recovery' };
  return {
    name,
    suite: 'chaos',
    rate: 600 / replicas,
    replicas,
    concurrency: 32,
    ...judging,
    phases,
  };
}

function pressure(
  name: string,
  [rate, concurrency]: [number, number],
  stress: PhaseKind,
  [stressSeconds, recoverySeconds]: [number, number],
): Cell {
  const phases = [
    phase('warmup', 'warmup', 30),
    phase('clean', 'clean', 60),
    phase('stress', stress, stressSeconds),
    phase('recovery', 'clean', recoverySeconds),
  ];
  const judging = { baseline: 'clean', judged: 'stress' };
  return { name, suite: 'pressure', rate, replicas: 1, concurrency, ...judging, phases };
}

function phase(label: string, kind: PhaseKind, seconds: number): Phase {
  return { label, kind, seconds };
}

export const cells: Cell[] = [
  chaos('postgres_restart', 1, [phase('fault', 'postgres-restart', 60)]),
  chaos('pg_backend_kill', 1, [phase('fault', 'pg-backend-kill', 60)]),
  chaos('pool_exhaustion', 1, [phase('fault', 'pool-exhaustion', 60)]),
  chaos('crash_recovery', 2, [
    phase('kill', 'kill-worker', 60),
    phase('restart', 'start-worker', 60),
  ]),
  chaos('repeated_kills', 2, [phase('fault', 'repeated-kill', 120)]),
  pressure('idle_in_tx', [800, 32], 'idle-in-tx', [240, 180]),
  pressure('sustained_high_load', [800, 32], 'high-load', [240, 120]),
  pressure('active_readers', [800, 32], 'active-readers', [240, 120]),
  pressure('event_burst', [1200, 64], 'high-load', [300, 240]),
];
