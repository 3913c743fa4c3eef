// One delivery in a dialog: its tries with the responses, and the request. It is read again while it is not finished.

import { pathOf } from './answers.js';
import type { DeliveryDetail } from './answers.js';
import { DeliveryStatus } from './state.js';
import { post } from '../../api.js';
import { formatJson } from '../../json-format.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { Copy } from '../../parts/copy.js';
import { Dialog } from '../../parts/dialog.js';
import { Empty, Problem } from '../../parts/problem.js';
import { Ago, Time } from '../../parts/time.js';
import { bytes, count, milliseconds } from '../../shown.js';

type Attempt = DeliveryDetail['attempts'][number];
type Request = NonNullable<DeliveryDetail['request']>;

export type DeliveryPart = 'responses' | 'request';

type DialogProps = {
  endpoint: string;
  id: string;
  part: DeliveryPart;
  show: (part: DeliveryPart) => void;
  changed: () => void;
  close: () => void;
};

export function DeliveryDialog({ endpoint, id, part, show, changed, close }: DialogProps) {
  const path = pathOf(endpoint, `/messages/${encodeURIComponent(id)}`);
  const { data, error, refresh } = useLive<DeliveryDetail>(path, { everyMs: 1000 });
  const resend = async (): Promise<void> => {
    await post(`${path}/resend`);
    refresh();
    changed();
  };
  return (
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
            <Action label="Resend" icon="retry" act={resend} />
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
            {part === 'request' ? <RequestPart request={data.request} /> : <Responses of={data} />}
          </div>
        </>
      )}
    </Dialog>
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
      {response ? (
        <pre tabIndex={0} aria-label={`Response to try ${tries}`}>
          {shownText(response)}
        </pre>
      ) : (
        <p class="muted">The response had no body.</p>
      )}
    </li>
  );
}

function RequestPart({ request }: { request: Request | null }) {
  if (request === null) return <Empty>The message is no longer stored.</Empty>;
  const { method, url, headers, body, bodyBytes, hasHiddenHeaders } = request;
  return (
    <div class="request">
      <p class="notice">
        Computed from the message and from the endpoint as it is now. Signatures, logins and the
        values of added headers and parameters are hidden.
      </p>
      <p class="request-line">
        <b>{method}</b> <code>{url}</code>
      </p>
      <dl class="headers">
        {headers.map(({ name, value }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {hasHiddenHeaders && <p class="muted">And the headers that were added to the endpoint.</p>}
      <div class="body-head">
        <span class="muted">Body, {bytes(bodyBytes)}</span>
        <span class="spacer" />
        {body !== null && <Copy label="Copy" text={body} />}
      </div>
      {body === null ? (
        <p class="notice">The body is too large to show.</p>
      ) : (
        <pre tabIndex={0} aria-label="Body of the request">
          {formatJson(body)}
        </pre>
      )}
      {body !== null && new TextEncoder().encode(body).length < bodyBytes && (
        <p class="muted">The first {count(body.length)} characters.</p>
      )}
    </div>
  );
}

function shownText(text: string): string {
  return /^\s*[[{]/.test(text) ? formatJson(text) : text;
}
