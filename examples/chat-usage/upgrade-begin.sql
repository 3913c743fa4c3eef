-- First step of the upgrade (UPGRADE.md): takes the old table away from producers and dispatchers until the end of the
-- transaction. It waits for their open transactions for five seconds and then fails, having changed nothing.
SET LOCAL lock_timeout = '5s';
LOCK TABLE public.modkit_outbox_events IN ACCESS EXCLUSIVE MODE;
ALTER TABLE public.modkit_outbox_events RENAME TO modkit_outbox_events_old;
