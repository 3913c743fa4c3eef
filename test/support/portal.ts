// The customer portal on a test's database, with tokens of tenants, and events to choose from.

import type { Page } from 'playwright-core';

import { events } from '../../examples/portal/events.js';
import type { Config } from '../../src/config.js';
import { createTenantTokens } from '../../src/features/tokens/tenant-tokens.js';
import type { NewTenantToken } from '../../src/features/tokens/tenant-tokens.js';
import type { PortalOptions } from '../../src/server/portal-options.js';
import type { PageOptions, TestBrowser } from './browser.js';
import { endpointSettings, setKey, testKey } from './endpoints.js';
import type { TestDatabase } from './postgres.js';
import { serveDatabase } from './server.js';
import type { TestServer } from './server.js';

export type TestPortal = TestServer & {
  /** A tenant token. */
  tokenOf(tenantId: string, given?: Partial<NewTenantToken>): Promise<string>;
  /** Opens the portal as this tenant. */
  open(tenantId: string, options?: PageOptions & { place?: string }): Promise<Page>;
};

export async function servePortal(
  db: TestDatabase,
  browser: TestBrowser,
  portal: PortalOptions = {},
): Promise<TestPortal> {
  setKey(testKey);
  const config: Partial<Config> = { endpoints: endpointSettings, events, server: { portal } };
  const server = await serveDatabase(db, { config, portal });
  const tokens = createTenantTokens({ schema: db.schema });
  const tokenOf: TestPortal['tokenOf'] = async (tenantId, given = {}) =>
    (await tokens.add(db.pool, { tenantId, ...given })).token;
  return {
    ...server,
    tokenOf,
    async open(tenantId, { place, ...options } = {}) {
      const page = await browser.open(
        `${server.url}/portal#token=${await tokenOf(tenantId)}`,
        options,
      );
      if (place !== undefined) await page.goto(`${server.url}/portal#/${place}`);
      return page;
    },
  };
}
