-- When a consumer last went on in each stream, so that positions in streams of forgotten keys can go too; see
-- functions/forget_positions.sql. Nothing is rewritten: what is there gets the time of this migration. No index:
-- positions change at every message, and their updates must stay within the page. And which destinations wait for
-- their rate limit at each relay, for explain.
-- Works with relays of Waybill 0.1.0 and newer.
ALTER TABLE inbox_positions ADD COLUMN IF NOT EXISTS used_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE relays ADD COLUMN IF NOT EXISTS limited text[] NOT NULL DEFAULT '{}';
