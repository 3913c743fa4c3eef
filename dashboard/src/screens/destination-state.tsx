// The state of a destination in a word and a colour, links to its screen, and its actions.

import { useContext } from 'preact/hooks';

import { decidingProblems, problemState } from '../../../src/core/destination-state.js';
import type { DestinationProblem } from '../../../src/core/destination-state.js';
import type { Destination } from '../answers.js';
import { post } from '../api.js';
import { Ago } from '../parts/time.js';
import { goTo, linkTo } from '../route.js';
import { SessionContext } from '../session.js';
import { about, count, rate } from '../shown.js';

type DestinationState = { kind: 'good' | 'warn' | 'bad' | 'off'; words: string };

/** The server sorts by the same problems: see src/listing/destination-list.ts. */
export function destinationState(destination: Destination): DestinationState {
  const { paused, configured, waiting, breakers, deliveredLately, failedLately, dead } =
    destination;
  const has: Record<DestinationProblem, boolean> = {
    breaker: breakers.length > 0,
    unconfigured: !configured && waiting > 0,
    failing: failedLately > deliveredLately,
    dead: dead > 0,
    paused,
  };
  const problem = decidingProblems.find((each) => has[each]);
  if (problem !== undefined) {
    const state = problemState(problem, deliveredLately === 0);
    return problem === 'dead' ? { ...state, words: deadLetters(dead) } : state;
  }
  if (!configured) return { kind: 'off', words: 'in no configuration' };
  return { kind: 'good', words: 'delivering' };
}

export function deadLetters(dead: number): string {
  return `${about(dead)} dead ${dead === 1 ? 'letter' : 'letters'}`;
}

/** An endpoint has a screen of its own. */
export function linkToDestination({ name, kind }: { name: string; kind?: string }): string {
  const screen = kind === 'endpoint' ? 'endpoints' : 'destinations';
  return linkTo(`${screen}/${encodeURIComponent(name)}`);
}

/** A name that links to its screen, unless the user is limited to a tenant and has only the messages. */
export function DestinationName({ name }: { name: string }) {
  const { tenantId } = useContext(SessionContext);
  return tenantId === null ? <a href={linkToDestination({ name })}>{name}</a> : <>{name}</>;
}

export function destinationPath(name: string, below = ''): string {
  return `destinations/${encodeURIComponent(name)}${below}`;
}

export async function pauseOrResume({ name, paused }: Destination): Promise<void> {
  await post(destinationPath(name, paused ? '/resume' : '/pause'));
}

/** Sends a test, and shows the screen of its message, which has the result. */
export async function sendTest({ name }: Destination): Promise<void> {
  const { messageId } = await post<{ messageId: string }>(destinationPath(name, '/test'));
  goTo(linkTo(`messages/${messageId}`));
}

const textClasses = { good: '', off: 'muted', warn: 'warn-text', bad: 'bad-text' };

export function State({ destination }: { destination: Destination }) {
  const { paused, pausedAt, pausedBy, pausedCode, pausedReason } = destination;
  const { kind, words } = destinationState(destination);
  if (!paused) return <span class={textClasses[kind]}>{words}</span>;
  const why = [pausedCode, pausedReason].filter((part) => part !== null).join(': ');
  return (
    <span class="warn-text" title={why}>
      paused <Ago at={pausedAt} />
      {pausedBy !== null && (
        <small class="why" title={pausedBy}>
          {' '}
          by {pausedBy}
        </small>
      )}
      {why !== '' && <small class="why">{why}</small>}
    </span>
  );
}

export function shownOwner({ name, versions }: Destination['owners'][number]): string {
  if (name === 'sql') return 'defined in SQL';
  return versions.length === 0 ? name : `${name} ${versions.join(' and ')}`;
}

export function shownLimit(perSecond: number): string {
  return Number.isInteger(perSecond) ? count(perSecond) : rate(perSecond);
}
