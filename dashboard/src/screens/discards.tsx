// Discards of single dead letters: the letter that was just discarded, in the bar of results, with a button that undoes
// it.

import { useState } from 'preact/hooks';

import { post } from '../api.js';
import { Action } from '../parts/action.js';
import type { Question } from '../parts/dialog.js';
import { MessageName, Outcome } from '../parts/outcomes.js';
import type { Named } from '../parts/outcomes.js';

/** A function that asks before it discards a letter, and the result. `restored` is called after an undo. */
export function useDiscards(ask: (question: Question) => void, restored: () => void) {
  const [last, setLast] = useState<{ letter: Named; isRestored: boolean }>();
  const discard = (letter: Named, question: Question): void =>
    ask({
      ...question,
      async act() {
        await question.act();
        setLast({ letter, isRestored: false });
      },
    });
  const undo = async (letter: Named): Promise<void> => {
    const { messageId, destination } = letter;
    await post(`messages/${messageId}/restore`, { destination });
    // another letter may have been discarded meanwhile
    setLast((now) => (now?.letter === letter ? { letter, isRestored: true } : now));
    restored();
  };
  const word = last?.isRestored ? 'Restored' : 'Discarded';
  const discarded = last && (
    <Outcome label={word} dismiss={() => setLast(undefined)}>
      <span role="status">
        {word} <MessageName message={last.letter} />
        {last.isRestored && ': it is a dead letter again'}.
      </span>
      {!last.isRestored && <Action label="Undo" icon="replay" act={() => undo(last.letter)} />}
    </Outcome>
  );
  return { discard, discarded };
}
