// One delivery in a dialog: its tries with the responses, and the request. It is read again while it is not finished.

import { pathOf } from './answers.js';
import type { DeliveryDetail, Endpoint } from './answers.js';
import { DeliveryStatus } from './state.js';
import { post } from '../../api.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { Dialog, useQuestion } from '../../parts/dialog.js';
import { Empty, Problem } from '../../parts/problem.js';
import { resendQuestion } from '../../parts/resend.js';
import { RequestPart, ResponseBody } from '../../parts/request.js';
import { Ago, Time } from '../../parts/time.js';
import { count, milliseconds } from '../../shown.js';

type Attempt = DeliveryDetail['attempts'][number];

export type DeliveryPart = 'responses' | 'request';

type DialogProps = {
  endpoint: Endpoint;
  id: string;
  part: DeliveryPart;
  show: (part: DeliveryPart) => void;
  close: () => void;
};

export function DeliveryDialog({ endpoint, id, part, show, close }: DialogProps) {
  const path = pathOf(endpoint.name, `/messages/${encodeURIComponent(id)}`);
  const { data, error, refresh } = useLive<DeliveryDetail>(path, { everyMs: 1000, always: true });
  const { ask, dialog } = useQuestion((done) => done && refresh());
  const resend = ({ topic }: DeliveryDetail): void =>
    ask(resendQuestion({ id, topic, to: endpoint.url }, () => post(`${path}/resend`)));
  return (
    <>
      <Dialog title={data?.topic ?? 'Delivery'} wide close={close}>
        <Problem error={error} again={refresh} />
        {data && (
          <>
            <div class="delivery-line">
              <DeliveryStatus delivery={data} />
              <span class="muted">
                {data.nextTryAt === null ? (
                  <>
                    created <Ago at={data.createdAt} />
                  </>
                ) : (
                  <>
                    next try <Ago at={data.nextTryAt} />
                  </>
                )}
              </span>
              <code class="muted delivery-id">{data.messageId}</code>
              <span class="spacer" />
              <Action label="Resend" icon="retry" act={() => resend(data)} />
            </div>
            <div class="tabs" role="tablist" aria-label="Parts">
              {(['responses', 'request'] as const).map((name) => (
                <button
                  key={name}
                  type="button"
                  role="tab"
                  id={`tab-${name}`}
                  aria-selected={part === name}
                  aria-controls="delivery-part"
                  onClick={() => show(name)}
                >
                  {name === 'request' ? 'Request' : `Responses (${data.attempts.length})`}
                </button>
              ))}
            </div>
            <div id="delivery-part" role="tabpanel" aria-labelledby={`tab-${part}`}>
              {part === 'responses' ? (
                <Responses of={data} />
              ) : data.request === null ? (
                <Empty>The message is no longer stored.</Empty>
              ) : (
                <RequestPart
                  request={data.request}
                  note="Computed from the message and from the endpoint as it is now. Signatures, logins and the values of added headers and parameters are hidden."
                />
              )}
            </div>
          </>
        )}
      </Dialog>
      {dialog}
    </>
  );
}

function Responses({ of: { attempts } }: { of: DeliveryDetail }) {
  if (attempts.length === 0) return <Empty>It has not been sent yet.</Empty>;
  return (
    <ol class="attempts" reversed>
      {attempts.toReversed().map((attempt) => (
        <AttemptItem key={attempt.claimNo} attempt={attempt} />
      ))}
    </ol>
  );
}

function AttemptItem({ attempt }: { attempt: Attempt }) {
  const { tries, remoteCode, errorCode, errorMessage, latencyMs, response, endedAt, claimedAt } =
    attempt;
  const arrived = errorCode === null;
  return (
    <li>
      <div class="attempt-line">
        <b>Try {count(tries)}</b>
        <span class={`status ${arrived ? 'delivered' : 'dead'}`}>
          {remoteCode ?? errorCode ?? 'sending'}
        </span>
        <span class="muted">
          <Time at={endedAt ?? claimedAt} />
          {latencyMs !== null && ` · ${milliseconds(latencyMs)}`}
        </span>
      </div>
      {errorMessage !== null && <p class="attempt-error">{errorMessage}</p>}
      <ResponseBody label={`Response to try ${tries}`} response={response} />
    </li>
  );
}
