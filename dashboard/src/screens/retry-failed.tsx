// Retry of the deliveries that wait for a retry: how many were made due, in the bar of results.

import { useState } from 'preact/hooks';

import { post } from '../api.js';
import { Outcome } from '../parts/outcomes.js';
import { linkTo } from '../route.js';
import { plural } from '../shown.js';

export type RetryFailed = (filter: Record<string, string>) => Promise<void>;

/** A function that makes the matching deliveries due, and the result. */
export function useRetryFailed() {
  const [last, setLast] = useState<{ count: number; href: string }>();
  const retryFailed: RetryFailed = async (filter) => {
    const { madeDue } = await post<{ madeDue: number }>('retrying/retry', filter);
    // whatever becomes of them, they are messages that had failed before now
    const failedTo = filter['failedTo'] ?? new Date().toISOString();
    setLast({ count: madeDue, href: linkTo('messages', { ...filter, failedTo }) });
  };
  const madeDue = last && (
    <Outcome label="Retry failed" dismiss={() => setLast(undefined)}>
      <span role="status">{plural(last.count, 'delivery', 'deliveries')} made due.</span>
      {last.count > 0 ? (
        <a class="button small" href={last.href}>
          Show messages that had failed
        </a>
      ) : (
        <a class="button small" href={linkTo('dead-letters')}>
          Go to dead letters
        </a>
      )}
    </Outcome>
  );
  return { retryFailed, madeDue };
}
