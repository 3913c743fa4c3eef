// Dialog with the keyboard shortcuts of the page.

import { keys } from './keys.js';
import { Dialog } from './parts/dialog.js';

export function KeysDialog({ close }: { close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <dl class="keys">
        {keys.map(([key, action]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{action}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
