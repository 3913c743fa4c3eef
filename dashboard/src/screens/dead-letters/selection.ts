// Selection on the screen of dead letters: some letters, some groups, or all that match the filters. The letters of a
// selection may have several destinations; one job changes them all.

import type { ListedMessage } from '../../answers.js';
import { plural } from '../../shown.js';
import type { Change } from './dead-letter-job.js';

export type Selection =
  | { kind: 'letters'; letters: ReadonlyMap<string, ListedMessage> }
  | { kind: 'groups'; causes: ReadonlySet<string> }
  | { kind: 'all' };

export const nothing: Selection = { kind: 'letters', letters: new Map() };

export function keyOf(message: ListedMessage): string {
  return `${message.messageId} ${message.destination ?? ''}`;
}

export function withLetter(selection: Selection, message: ListedMessage, on: boolean): Selection {
  const letters = new Map(selection.kind === 'letters' ? selection.letters : []);
  if (on) letters.set(keyOf(message), message);
  else letters.delete(keyOf(message));
  return { kind: 'letters', letters };
}

export function withGroup(selection: Selection, cause: string, on: boolean): Selection {
  const causes = new Set(selection.kind === 'groups' ? selection.causes : []);
  if (on) causes.add(cause);
  else causes.delete(cause);
  return causes.size === 0 ? nothing : { kind: 'groups', causes };
}

export function isEmpty(selection: Selection): boolean {
  return selection.kind === 'letters' && selection.letters.size === 0;
}

export function isChosen(selection: Selection, message: ListedMessage): boolean {
  return (
    selection.kind === 'all' ||
    (selection.kind === 'letters' && selection.letters.has(keyOf(message)))
  );
}

/** What is selected, as `3 letters`. */
export function selectedWords(selection: Selection): string {
  if (selection.kind === 'all') return 'All letters that match';
  return selection.kind === 'groups'
    ? plural(selection.causes.size, 'group')
    : plural(selection.letters.size, 'letter');
}

/** The change of everything that is selected. */
export function changeOf(
  action: Change['action'],
  selection: Selection,
  { cause, ...filter }: Record<string, string>,
): Change {
  switch (selection.kind) {
    case 'letters': {
      const letters = [...selection.letters.values()];
      return {
        action,
        what: `the selected ${plural(letters.length, 'letter')}`,
        filter: {
          ids: letters.map(({ messageId }) => messageId),
          destinations: letters.map(({ destination }) => destination ?? ''),
        },
      };
    }
    case 'groups':
      return {
        action,
        what: `the letters of ${plural(selection.causes.size, 'group')}`,
        filter: { ...filter, causes: [...selection.causes] },
      };
    case 'all':
      return {
        action,
        what:
          cause === undefined && Object.keys(filter).length === 0
            ? 'all dead letters'
            : 'all that match',
        filter: { ...filter, ...(cause !== undefined && { causes: [cause] }) },
      };
  }
}
