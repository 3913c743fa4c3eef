// Shows the request of a webhook, and the response to a try. The request can be copied as a command for curl.

import type { ComponentChildren } from 'preact';

import type { SentRequest } from '../../../src/destinations/sent-request.js';
import { curlOf } from '../curl.js';
import { formatJson } from '../json-format.js';
import { bytes, count } from '../shown.js';
import { Copy } from './copy.js';

type RequestProps = {
  request: SentRequest;
  /** Where it comes from, and what is hidden. */
  note: ComponentChildren;
};

export function RequestPart({ request, note }: RequestProps) {
  const { method, url, headers, body, bodyBytes, hasHiddenHeaders } = request;
  const isCut = body !== null && new TextEncoder().encode(body).length < bodyBytes;
  return (
    <div class="request">
      <p class="notice">{note}</p>
      <div class="request-line">
        <b>{method}</b> <code>{url}</code> <span class="spacer" />
        {body !== null && !isCut && <Copy label="Copy as cURL" text={curlOf(request)} />}
      </div>
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
      {isCut && <p class="muted">The first {count(body.length)} characters.</p>}
    </div>
  );
}

export function ResponseBody({ label, response }: { label: string; response: string | null }) {
  return response ? (
    <pre tabIndex={0} aria-label={label}>
      {/^\s*[[{]/.test(response) ? formatJson(response) : response}
    </pre>
  ) : (
    <p class="muted">The response had no body.</p>
  );
}
