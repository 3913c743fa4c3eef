-- Storage of endpoints.

-- Endpoints: webhooks that are stored here instead of in a configuration; each is a destination of its own. secrets:
-- [{"sealed", "fingerprint", "since"}], the newest first; only a relay with the encryption key can open them. version
-- counts the changes. changed_in is the transaction of the last change, by which relays find it.
CREATE TABLE endpoints (
  destination_id int         PRIMARY KEY REFERENCES destinations,
  url            text        NOT NULL,
  topics         text[]      NOT NULL,
  namespace      text,
  tenant_id      text,
  description    text,
  body           text,
  secrets        jsonb       NOT NULL,
  sealed_headers text,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  removed_at     timestamptz,
  version        int         NOT NULL DEFAULT 1,
  changed_in     xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX endpoints_by_change ON endpoints (changed_in);
CREATE INDEX endpoints_removed ON endpoints (removed_at) WHERE removed_at IS NOT NULL;
CREATE INDEX endpoints_by_tenant ON endpoints (tenant_id, destination_id) WHERE removed_at IS NULL;
-- for lists, the newest first, and for searches by the beginning of an address or a name
CREATE INDEX endpoints_listed ON endpoints (destination_id) WHERE removed_at IS NULL;
CREATE INDEX endpoints_by_url ON endpoints (url COLLATE "C") WHERE removed_at IS NULL;
CREATE INDEX endpoints_by_name ON destinations (name COLLATE "C") WHERE origin = 'database';

-- The settings that all endpoints share, from the relay that was started last: one row. The default delays are those
-- that the Standard Webhooks specification proposes.
CREATE TABLE endpoint_settings (
  one             boolean  PRIMARY KEY DEFAULT true CHECK (one),
  max_attempts    int      NOT NULL DEFAULT 10,
  retry_base_ms   bigint   NOT NULL DEFAULT 0,
  retry_max_ms    bigint   NOT NULL DEFAULT 0,
  retry_delays_ms bigint[] DEFAULT '{5000,300000,1800000,7200000,18000000,36000000,50400000,72000000,86400000}',
  when_dead       text     NOT NULL DEFAULT 'continue',
  max_per_tenant  int      NOT NULL DEFAULT 100
);
INSERT INTO endpoint_settings DEFAULT VALUES;
