// A new secret, shown once. It is held in memory on its way from the form to the endpoint's screen, and nowhere else.

import { useRef } from 'preact/hooks';

import type { ShownSecret } from '../answers.js';
import { Copy } from '../../../parts/copy.js';
import { Dialog } from '../../../parts/dialog.js';

let made: ShownSecret | null = null;

export function keepNewSecret(secret: ShownSecret): void {
  made = secret;
}

/** The secret of an endpoint that was just added; the next call returns null. */
export function takeNewSecret(name: string): ShownSecret | null {
  const found = made?.name === name ? made : null;
  made = null;
  return found;
}

export function SecretDialog({ secret, close }: { secret: ShownSecret; close: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  return (
    <Dialog title="Your signing secret" close={close}>
      <p class="notice">Copy it now and store it safely. It is not shown again.</p>
      <div class="secret">
        <input
          ref={field}
          readOnly
          aria-label="Secret"
          value={secret.secret}
          onFocus={() => field.current?.select()}
        />
        <Copy label="Copy" text={secret.secret} />
      </div>
      <p class="muted">
        Your receiver checks the signature of each request with it, for example with a library of{' '}
        <a href="https://www.standardwebhooks.com" target="_blank" rel="noopener noreferrer">
          Standard Webhooks
        </a>
        .
      </p>
      <footer>
        <button type="button" class="primary" onClick={close}>
          I have stored it
        </button>
      </footer>
    </Dialog>
  );
}
