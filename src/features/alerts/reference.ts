// Tables of the alerts' options in docs/reference/configuration.md.

import type { OptionTable } from '../feature.js';
import { resolveAlertOptions, resolveAlertWebhook } from './options.js';
import type { AlertWebhookOptions } from './options.js';

export const alertTables: Record<string, OptionTable> = {
  alertOptions: {
    file: 'features/alerts/options.ts',
    type: 'AlertOptions',
    resolve: resolveAlertOptions,
    words: {
      thresholds: { allowed: 'names of [alerts](../operate/alerts.md) and numbers, or `null`' },
      webhook: { allowed: 'an object, see below, or `null`' },
    },
  },
  alertWebhook: {
    file: 'features/alerts/options.ts',
    type: 'AlertWebhookOptions',
    base: { url: 'https://example.com' },
    resolve: (options) => {
      const { timeoutMs } = resolveAlertWebhook(options as AlertWebhookOptions);
      return { timeoutMs };
    },
    words: {
      url: { fallback: 'required' },
      secrets: { allowed: 'one secret, or a list of 1 to 10' },
      headers: { allowed: 'an object of texts' },
    },
  },
};
