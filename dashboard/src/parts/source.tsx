// Says which database the shown data comes from, if there is a replica: its data may be a little old.

import type { Health } from '../answers.js';
import { seconds } from '../shown.js';

export function SourceLine({ source }: { source: Health['source'] | undefined }) {
  if (source === null || source === undefined) return null;
  const { from, ageMs, reason } = source;
  return (
    <p class="source muted" role="note">
      {from === 'replica'
        ? `As of ${seconds((ageMs ?? 0) / 1000)} ago, from the replica.`
        : reason === null
          ? 'From the primary: the replica did not have it yet.'
          : `From the primary: the replica is not used: ${reason}.`}
    </p>
  );
}
