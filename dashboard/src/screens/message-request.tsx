// Request and response of one try, in a dialog: the request as this server computes it, the stored part of the response,
// and a button to send the message again.

import type { ShownRequest } from '../../../src/destinations/sent-request.js';
import type { Attempt } from '../answers.js';
import { withQuery } from '../api.js';
import { useLive } from '../live.js';
import { Action, useMayOperateAll } from '../parts/action.js';
import { Dialog } from '../parts/dialog.js';
import { Problem, sentence } from '../parts/problem.js';
import { RequestPart, ResponseBody } from '../parts/request.js';
import { Time } from '../parts/time.js';
import { count, milliseconds } from '../shown.js';
import { linkToDestination } from './destination-state.js';

type Props = {
  messageId: string;
  attempt: Attempt;
  /** Asks whether the message shall be sent again. */
  resend: () => void;
  close: () => void;
};

export function RequestDialog({ messageId, attempt, resend, close }: Props) {
  const { destination, claimNo, tries, remoteCode, errorCode, errorMessage } = attempt;
  const path = `messages/${encodeURIComponent(messageId)}`;
  const mayOperateAll = useMayOperateAll();
  const { data, error, refresh } = useLive<ShownRequest>(
    withQuery(`${path}/requests/${encodeURIComponent(destination)}`, { claimNo }),
    { everyMs: 60_000 },
  );
  // a function has no response
  const hasResponse = Boolean(data?.request) || attempt.response !== null;
  return (
    <Dialog title={`Request to ${destination}`} wide close={close}>
      <div class="attempt-line">
        <b>Try {count(tries)}</b>
        <span class={`status ${errorCode === null ? 'delivered' : 'dead'}`}>
          {remoteCode ?? errorCode ?? (attempt.endedAt === null ? 'sending' : 'delivered')}
        </span>
        <span class="muted">
          <Time at={attempt.endedAt ?? attempt.claimedAt} />
          {attempt.latencyMs !== null && ` · ${milliseconds(attempt.latencyMs)}`}
        </span>
        <span class="spacer" />
        {mayOperateAll && attempt.endedAt !== null && (
          <Action label="Resend" icon="retry" act={resend} />
        )}
      </div>
      <Problem error={error} again={refresh} />
      {data?.request === null && (
        <p class="notice">
          The request cannot be shown. {sentence(data.reason ?? '')}{' '}
          {data.kind === 'endpoint' && (
            <a href={linkToDestination({ name: destination, kind: data.kind })}>
              Open the endpoint
            </a>
          )}
        </p>
      )}
      {data?.request && (
        <RequestPart
          request={data.request}
          note="Computed from the message and from the configuration of this server as it is now. Signatures, logins, values of added headers and parameters, and tokens in the address are hidden."
        />
      )}
      {attempt.endedAt !== null && (hasResponse || errorMessage !== null) && (
        <section class="attempts" aria-label={hasResponse ? 'Response' : 'Error'}>
          <h3>{hasResponse ? 'Response' : 'Error'}</h3>
          {errorMessage !== null && <p class="attempt-error">{errorMessage}</p>}
          {hasResponse && (
            <>
              <ResponseBody label={`Response to try ${tries}`} response={attempt.response} />
              <p class="muted">
                The status and the beginning of the body are stored; headers are not.
              </p>
            </>
          )}
        </section>
      )}
    </Dialog>
  );
}
