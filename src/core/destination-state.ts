// State of a destination: its problems, which of them decides its state, and the words and the colour for it. The page,
// the list of destinations and the flow use the same.

/** What can be wrong with a destination, the most urgent first. */
export const destinationProblems = [
  'breaker',
  'unconfigured',
  'failing',
  'dead',
  'paused',
] as const;
export type DestinationProblem = (typeof destinationProblems)[number];

/**
 * The first of these that a destination has decides its state. A paused one is only paused: it gets no tries until it is
 * resumed, so nothing else about it is urgent.
 */
export const decidingProblems = [
  'paused',
  'breaker',
  'unconfigured',
  'failing',
  'dead',
] as const satisfies readonly DestinationProblem[];

/** Red or amber, and words. `neverSucceeds`: no try of the last five minutes succeeded. */
export function problemState(
  problem: DestinationProblem,
  neverSucceeds = false,
): { kind: 'bad' | 'warn'; words: string } {
  switch (problem) {
    case 'breaker':
      return { kind: 'bad', words: 'breaker open' };
    case 'unconfigured':
      return { kind: 'bad', words: 'in no configuration' };
    case 'failing':
      return neverSucceeds
        ? { kind: 'bad', words: 'every try fails' }
        : { kind: 'warn', words: 'fails often' };
    case 'dead':
      return { kind: 'warn', words: 'dead letters' };
    case 'paused':
      return { kind: 'warn', words: 'paused' };
  }
}
