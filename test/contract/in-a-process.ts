// Runs a destination in its own process, to prove that the destination does not keep the process alive.

import { importAll, packageUrl, runNode } from '../support/cli.js';
import { claimedRow } from '../support/claimed-message.js';
import { fields } from './sender.js';

/**
 * Delivers to a port without a listener, and to one whose listener never answers. Returns the outcomes if the process
 * ends by itself after the close. `source` makes the destination for `port`.
 */
export async function outcomesOfNobody(source: string): Promise<string[]> {
  const script = `
    import { createServer } from 'node:net';
    import { ClaimedMessage } from ${JSON.stringify(new URL('core/claimed-message.js', packageUrl).href)};
    ${importAll}
    const silent = createServer((socket) => socket.unref());
    await new Promise((resolve) => silent.listen(0, '127.0.0.1', resolve));
    silent.unref();
    for (const port of [1, silent.address().port]) {
      const destination = ${source};
      await destination.open();
      const message = new ClaimedMessage(${JSON.stringify(claimedRow(fields()))});
      const { kind, code } = await destination.deliver(message, { signal: AbortSignal.timeout(500) });
      await destination.close();
      console.log(kind, code);
    }
  `;
  const { stdout, stderr } = await runNode(['--input-type=module', '-e', script]).ended(15_000);
  return `${stdout}${stderr}`.trim().split('\n');
}
