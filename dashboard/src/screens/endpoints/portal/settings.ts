// Settings of the portal, which the server writes into the head of its page.

import type { PortalSettings } from '../../../../../src/server/portal.js';

function read(): PortalSettings {
  const content = document.querySelector<HTMLMetaElement>('meta[name=portal]')?.content;
  const usual = { name: 'Webhooks', logo: null, logoDark: null, embeddedBy: [] };
  return content ? (JSON.parse(content) as PortalSettings) : usual;
}

export const settings = read();
