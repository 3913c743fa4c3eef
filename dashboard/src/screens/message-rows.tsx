// Columns of every list of messages, and the actions on one message.

import { useRef } from 'preact/hooks';

import type { ListedMessage } from '../answers.js';
import { post } from '../api.js';
import type { Question } from '../parts/dialog.js';
import { Status } from '../parts/status.js';
import type { Column } from '../parts/table.js';
import { Ago, Time } from '../parts/time.js';
import { linkTo } from '../route.js';

/** Whether the delivery can still be sent or discarded. */
export function isOpen({ status }: { status: string }): boolean {
  return status === 'pending' || status === 'dead';
}

type Open = {
  messageId: string;
  destination: string | null;
  status: string;
  tries: number;
  nextTryAt: string | null;
};

/**
 * Retries an open delivery now. One that is scheduled for later and was never tried is not late, so the operator is
 * asked first.
 */
export async function retryNow(
  message: Open,
  ask: (question: Question) => void,
  done: () => void,
): Promise<void> {
  const { messageId, destination, status, tries, nextTryAt } = message;
  const act = () => post(`messages/${messageId}/retry`, { destination });
  const isScheduled =
    status === 'pending' && tries === 0 && nextTryAt !== null && Date.parse(nextTryAt) > Date.now();
  if (isScheduled) return ask(earlyQuestion(message, act));
  await act();
  done();
}

function earlyQuestion(
  { messageId, destination, nextTryAt }: Open,
  act: Question['act'],
): Question {
  return {
    title: 'Send this message early?',
    text: (
      <>
        <p>
          <code>{messageId}</code> at <b>{destination}</b>
        </p>
        <p>
          It is scheduled for <Time at={nextTryAt} /> (<Ago at={nextTryAt} />
          ); send it now?
        </p>
      </>
    ),
    button: 'Send now',
    act,
  };
}

/** The columns; once a row has a tenant there is one for it, and it stays, so that live updates move nothing. */
export function useMessageColumns(
  rows: readonly ListedMessage[] | undefined,
): readonly Column<ListedMessage>[] {
  const hasTenants = useRef(false);
  hasTenants.current ||= rows?.some(({ tenantId }) => tenantId !== null) ?? false;
  return hasTenants.current ? withTenants : messageColumns;
}

const messageColumns: readonly Column<ListedMessage>[] = [
  {
    head: 'Topic',
    inCard: 'title',
    cell: (message) => (
      <a class="topic" href={linkTo(`messages/${message.messageId}`)} title={message.messageId}>
        {message.topic ?? message.messageId}
        {message.key !== null && <small>{message.key}</small>}
      </a>
    ),
  },
  {
    head: 'Status',
    width: 'status',
    cell: (message) => <Status status={message.status} retrying={message.retrying} />,
  },
  { head: 'Destination', width: 'name', cell: (message) => message.destination ?? '–' },
  { head: 'Tries', numeric: true, width: 'tries', cell: (message) => message.tries },
  { head: 'Created', width: 'time', cell: (message) => <Time at={message.createdAt} /> },
  {
    head: 'Error',
    label: (message) => (hasError(message) || dueAt(message) === null ? 'Error' : 'When'),
    cell: (message) => <ErrorCell message={message} />,
  },
];

const withTenants = messageColumns.flatMap((column) =>
  column.head === 'Tries'
    ? [
        {
          head: 'Tenant',
          width: 'small' as const,
          cell: ({ tenantId }: ListedMessage) => tenantId ?? '–',
        },
        column,
      ]
    : [column],
);

function hasError({ errorCode, error }: ListedMessage): boolean {
  return errorCode !== null || error !== null;
}

function dueAt({ status, nextTryAt }: ListedMessage): ListedMessage['nextTryAt'] {
  return status === 'pending' ? nextTryAt : null;
}

function ErrorCell({ message }: { message: ListedMessage }) {
  const { errorCode, error, retrying } = message;
  const due = dueAt(message);
  if (!hasError(message) && due === null) return null;
  return (
    <span class={`error-cell ${isOpen(message) ? '' : 'muted'}`} title={error ?? ''}>
      {errorCode !== null && <code>{errorCode}</code>} {error}
      {due !== null && (
        <small class="muted">
          {retrying ? 'next try ' : 'due '}
          <Ago at={due} />
        </small>
      )}
    </span>
  );
}

export function deleteQuestion(message: {
  messageId: string;
  destination: string | null;
  status: string;
}): Question {
  const dead = message.status === 'dead';
  return {
    title: dead ? 'Discard this dead letter?' : 'Cancel this delivery?',
    text: (
      <>
        <p>
          <code>{message.messageId}</code>{' '}
          {message.destination !== null && (
            <>
              at <b>{message.destination}</b>
            </>
          )}
        </p>
        <p>
          {dead
            ? 'It will not be delivered. You can undo it until retention removes the message.'
            : 'It will not be delivered there, unless it is processing already. Its record is kept.'}
        </p>
      </>
    ),
    button: dead ? 'Discard' : 'Cancel delivery',
    danger: true,
    act: () => post(`messages/${message.messageId}/delete`, { destination: message.destination }),
  };
}
