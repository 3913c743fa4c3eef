// The relay's part of alerts: stores the configured thresholds in the database, and notifies the webhook.

import type { PartContext, RelayPart } from '../../relay/part.js';
import { syncAlertThresholds } from './database.js';
import { AlertNotifier } from './notifier.js';

export function alertsPart({
  setup: { alerts, shard },
  database,
  relayId,
  emit,
}: PartContext): RelayPart | undefined {
  if (alerts === undefined) return undefined;
  const { thresholds, webhook, repeatMs, checkMs } = alerts;
  const declare = () => syncAlertThresholds(database, thresholds);
  if (webhook === null) return { declare };
  const notifier = new AlertNotifier(database, relayId, webhook, repeatMs, emit, shard?.name);
  return {
    declare,
    // a drain that did its work does not fail because an alert could not be sent
    task: { what: 'alerts', everyMs: checkMs, run: () => notifier.check(), inDrain: 'end' },
    open: () => notifier.open(),
    stop: () => notifier.stop(),
    close: () => notifier.close(),
  };
}
