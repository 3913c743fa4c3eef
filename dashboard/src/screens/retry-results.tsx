// Results of retries: what became of dead letters that the user has just retried, in a line for each.
// Each is asked for with the live interval of the page, until it has a result, for at most five minutes.

import { useState } from 'preact/hooks';

import type { ListedMessage, MessagePage } from '../answers.js';
import { withQuery } from '../api.js';
import { useLive } from '../live.js';
import { MessageName, Outcome } from '../parts/outcomes.js';
import type { Named } from '../parts/outcomes.js';
import { Dot } from '../parts/status.js';
import { Ago } from '../parts/time.js';

const followedMs = 300_000;
/** The newest retries. */
const mostShown = 3;

type Retried = {
  letter: Named;
  /** When it had died before the retry. */
  diedAt: string;
  sinceMs: number;
};

/** A function that follows a dead letter which was retried, and the lines with the results. */
export function useRetryResults() {
  const [retried, setRetried] = useState<readonly Retried[]>([]);
  const follow = (letter: ListedMessage): void =>
    setRetried((before) =>
      [{ letter, diedAt: letter.changedAt, sinceMs: Date.now() }, ...before].slice(0, mostShown),
    );
  const results = retried.length > 0 && (
    <Outcome label="Retried" dismiss={() => setRetried([])}>
      <ul>
        {retried.map((each) => (
          <RetriedLine
            key={`${each.letter.messageId} ${each.letter.destination ?? ''} ${each.sinceMs}`}
            retried={each}
          />
        ))}
      </ul>
    </Outcome>
  );
  return { follow, results };
}

function RetriedLine({ retried }: { retried: Retried }) {
  const { messageId, destination } = retried.letter;
  const [isDone, setIsDone] = useState(false);
  const { data } = useLive<MessagePage>(
    withQuery('messages', { id: messageId, destination, limit: 1 }),
    { always: true, paused: isDone || Date.now() - retried.sinceMs > followedMs },
  );
  const now = data?.messages.find((message) => message.destination === destination);
  const result = now && resultOf(now, retried.diedAt);
  // a failed try that has a next one is no result yet
  if (result !== undefined && result.kind !== 'off' && now?.retrying !== true && !isDone)
    setIsDone(true);
  return (
    <li>
      <span role="status">
        <Dot kind={result?.kind ?? 'off'} /> Retried <MessageName message={retried.letter} />:{' '}
        <b>{result?.words ?? 'still waiting'}</b>
        {now?.retrying === true && (
          <>
            , next try <Ago at={now.nextTryAt} />
          </>
        )}
      </span>
    </li>
  );
}

type Result = { kind: 'good' | 'warn' | 'bad' | 'off'; words: string };

/** What became of a letter; `off`: nothing yet. */
function resultOf(now: ListedMessage, diedAt: string): Result {
  const again = `failed again: ${now.errorCode ?? 'no code'}`;
  if (now.status === 'delivered') return { kind: 'good', words: 'delivered' };
  if (now.status === 'discarded') return { kind: 'warn', words: 'discarded' };
  // an answer of a replica can be older than the retry
  if (now.status === 'dead' && now.changedAt !== diedAt) return { kind: 'bad', words: again };
  if (now.retrying) return { kind: 'warn', words: again };
  return { kind: 'off', words: 'still waiting' };
}
