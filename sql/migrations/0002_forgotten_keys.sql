-- Keys that are used no more may be forgotten: when each was last used, how far maintenance has looked, and of when
-- the last message was that a consumer has processed of each key. Nothing is rewritten: what is there gets the time of
-- this migration. No index: streams change at every message, and their updates must stay within the page.
-- Works with relays of Waybill 0.1.0 and newer.
ALTER TABLE streams ADD COLUMN IF NOT EXISTS last_used_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE inbox_positions ADD COLUMN IF NOT EXISTS made_at timestamptz DEFAULT now();
ALTER TABLE maintenance_runs ADD COLUMN IF NOT EXISTS position bigint[];
INSERT INTO maintenance_runs (task) VALUES ('keys'), ('lanes') ON CONFLICT DO NOTHING;
