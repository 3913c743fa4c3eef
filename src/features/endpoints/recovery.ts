// Recovery of an endpoint with any number of failed messages, in steps. Each step is its own transaction, unless the
// client is in one already.

import type { EndpointReference, Endpoints, Recovery } from './endpoints.js';

export async function recoverAll(
  endpoints: Endpoints,
  client: Parameters<Endpoints['add']>[0],
  which: EndpointReference,
  from?: Date | string,
): Promise<Pick<Recovery, 'since' | 'resent'>> {
  const first = await endpoints.recover(client, which, from ? { since: from } : {});
  const { since } = first;
  let { resent } = first;
  for (let { more } = first; more;) {
    const next = await endpoints.recover(client, which, { since });
    resent += next.resent;
    more = next.more;
  }
  return { since, resent };
}
