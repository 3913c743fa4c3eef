// Actions of an endpoint that operators and customers share.

import { pathOf } from './answers.js';
import type { Endpoint } from './answers.js';
import { post } from '../../api.js';
import { goTo, linkTo } from '../../route.js';

/** Disables an enabled endpoint, and enables a disabled one. */
export async function setEnabled({ name, enabled }: Endpoint): Promise<void> {
  await post(pathOf(name, enabled ? '/disable' : '/enable'));
}

/** Sends a test, and shows its result as it arrives. */
export async function sendTest({ name }: Endpoint): Promise<void> {
  const { messageId } = await post<{ messageId: string }>(pathOf(name, '/test'));
  goTo(linkTo(`endpoints/${encodeURIComponent(name)}`, { delivery: messageId }));
}
