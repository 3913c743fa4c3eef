// Shows a payload, formatted without being parsed, so that every digit is kept. A long payload is shown in part; copy
// and download have all of it.

import type { Message } from '../answers.js';
import { apiAddress } from '../api.js';
import { formatJson } from '../json-format.js';
import { useLive } from '../live.js';
import { bytes, count } from '../shown.js';
import { Copy } from './copy.js';
import { Dialog } from './dialog.js';
import { Problem } from './problem.js';

export function Payload({ message }: { message: Message }) {
  const address = apiAddress(`messages/${message.id}/payload`);
  const shownBytes = new TextEncoder().encode(message.payloadText).length;
  // a payload that is too large to show comes with its size only
  const readable = message.payloadText !== '';
  const whole = async (): Promise<string> => (await fetch(address)).text();
  return (
    <div class="payload">
      <div class="payload-head">
        <span class="muted">{bytes(message.payloadBytes)}</span>
        <span class="spacer" />
        {readable && <Copy label="Copy" text={whole} />}
        {readable && (
          <a class="button small" href={address} download={`${message.id}.json`}>
            Download
          </a>
        )}
      </div>
      {readable && <pre tabIndex={0}>{formatJson(message.payloadText)}</pre>}
      {!readable && <p class="notice">The payload is too large to read.</p>}
      {readable && shownBytes < message.payloadBytes && (
        <p class="notice">
          The first {count(message.payloadText.length)} characters. Download has the whole.
        </p>
      )}
    </div>
  );
}

export function PayloadDialog({ id, close }: { id: string; close: () => void }) {
  const { data, error, refresh } = useLive<Message>(`messages/${id}`, { paused: true });
  return (
    <Dialog title={data?.topic ?? 'Payload'} wide close={close}>
      <Problem error={error} again={refresh} />
      {data && <Payload message={data} />}
    </Dialog>
  );
}
